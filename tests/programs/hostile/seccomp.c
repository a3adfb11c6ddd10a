// Filters of system calls, set by the program.
//
// mild: while paging, a filter that refuses a few calls, then a fork. strict: while paging, one that allows this thread
// little more than to touch its memory. strict-fork: as strict, then a fork; there one line that says that the child
// cannot be paged is right as well. mild-before, all: before paging began; set for all threads.
#include "hostile.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

static const int refused[] = {SYS_ptrace, SYS_kexec_load, SYS_swapon, SYS_reboot, SYS_acct, SYS_bpf};
static const int allowed[] = {SYS_read,  SYS_write, SYS_exit, SYS_exit_group, SYS_munmap, SYS_madvise,
                              SYS_futex, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigaction, SYS_getpid,
                              SYS_clone, SYS_wait4, SYS_gettid, SYS_brk, SYS_fork, SYS_mmap, SYS_set_robust_list, SYS_rseq};

static void filter(const int *numbers, size_t count, int allows, int flags) {
    struct sock_filter program[64];
    size_t used = 0;
    program[used++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++)
        program[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], count - i, 0);
    unsigned no = SECCOMP_RET_ERRNO | EPERM, yes = SECCOMP_RET_ALLOW;
    program[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, allows ? no : yes);
    program[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, allows ? yes : no);
    struct sock_fprog made = {used, program};
    NEED(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &made)) missing("seccomp");
}

#define COUNT(list) (sizeof list / sizeof *list)

int main(int count, char **arguments) {
    begin(count, arguments);
    if (is("mild-before")) filter(refused, COUNT(refused), 0, 0);
    arena(arguments);
    if (is("mild")) filter(refused, COUNT(refused), 0, 0);
    if (is("all")) filter(refused, COUNT(refused), 0, SECCOMP_FILTER_FLAG_TSYNC);
    if (!strncmp(variant, "strict", 6)) filter(allowed, COUNT(allowed), 1, 0);
    else REFUSED(syscall(SYS_acct, 0), EPERM);
    for (int round = 0; round < 2; round++) verify_all("filtered");
    for (size_t i = 0; i < pages; i += 3) put(i);
    verify_all("filtered, written");
    if (!is("strict")) fork_and_verify();
    return done();
}
