// Runs a program where userfaultfd cannot be had: in a mount namespace without /dev/userfaultfd, and with
// a seccomp filter that answers userfaultfd(2) with an error. Needs root.
//
//   forbid ERRNO PROGRAM [ARGUMENTS]
//
// Exit code 77: it cannot be arranged here.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// An empty /dev but for null, which programs are started with.
static int hide_devices(void) {
    char null[64];
    int fd = open("/dev/null", O_PATH);
    if (fd < 0 || unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)) return -1;
    if (mount("none", "/dev", "tmpfs", 0, 0) || close(open("/dev/null", O_CREAT | O_WRONLY, 0666))) return -1;
    snprintf(null, sizeof null, "/proc/self/fd/%d", fd);
    return mount(null, "/dev/null", 0, MS_BIND, 0) || close(fd) ? -1 : 0;
}

static int forbid(int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? -1 : 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    if (hide_devices() || forbid(atoi(argv[1]))) return 77;
    execvp(argv[2], argv + 2);
    return 2;
}
