// Children of every kind, and programs that are started.
#include "torture.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { STACK_PAGES = 32, PATIENCE_MS = 60000 };

void wait_for(pid_t pid, const char *what) {
    int status;
    NEED(pid > 0);
    while (waitpid(pid, &status, __WALL) < 0) NEED(errno == EINTR);
    if (status) end(1, "%s: child %d ended with status %x", what, pid, status);
}

// What a child does with its copy: everything is right, stays right, and is its own.
void in_child(Worker *w, Region *r, const char *what) {
    w->random ^= getpid();
    check_region(r, what);
    for (size_t i = 0; i < r->pages; i += 1 + below(w, 4)) put(w, r, i);
    Region fresh = {0};
    make(&fresh, 256);
    for (size_t i = 0; i < fresh.pages; i++) put(w, &fresh, i);
    check_region(r, what);
    check_region(&fresh, what);
    for (int i = 0; i < OWN; i++) check(&w->own[i], below(w, w->own[i].pages), what);
    op_mremap(w, r);
    op_dontneed(w, r);
    check_region(r, what);
}

static void end_child(Worker *w, Region *r, const char *what) {
    in_child(w, r, what);
    _exit(0);
}

// The child must not see what is written here.
static void beside_child(Worker *w, Region *r, pid_t pid, const char *what) {
    NEED(pid > 0);
    for (size_t i = 0; i < r->pages; i += 3) put(w, r, i);
    wait_for(pid, what);
    check_region(r, what);
}

void op_fork(Worker *w, Region *r) {
    pid_t pid = fork();
    if (!pid) end_child(w, r, "child");
    beside_child(w, r, pid, "fork");
}

// --- forks by number and by hand ---------------------------------------------------------------

void op_clone3(Worker *w, Region *r) {
    static const uint64_t flags[] = {0, CLONE_PIDFD, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID, CLONE_FS, CLONE_CHILD_CLEARTID};
    int pidfd = -1;
    static __thread pid_t number;
    struct clone_args how = {.flags = flags[below(w, sizeof flags / sizeof *flags)], .exit_signal = SIGCHLD};
    how.pidfd = (uintptr_t)&pidfd, how.parent_tid = how.child_tid = (uintptr_t)&number;
    pthread_rwlock_rdlock(&descriptors);
    pid_t pid = syscall(SYS_clone3, &how, sizeof how);
    if (!pid) end_child(w, r, "clone3");
    beside_child(w, r, pid, "clone3");
    if (how.flags & CLONE_PIDFD) NEED(!close(pidfd));
    pthread_rwlock_unlock(&descriptors);
}

typedef struct {
    Worker *w;
    Region *r;
    int verdict, hold[2];
} Guest;

static int in_copy(void *argument) {
    Guest *guest = argument;
    in_child(guest->w, guest->r, "clone");
    return 0;
}

// A copy of the memory, on a stack of its own or by number.
void op_clone(Worker *w, Region *r) {
    Guest guest = {.w = w, .r = r};
    if (below(w, 2)) {
        pid_t pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (!pid) end_child(w, r, "clone by number");
        return beside_child(w, r, pid, "clone by number");
    }
    char *stack = map(STACK_PAGES);
    beside_child(w, r, clone(in_copy, stack + STACK_PAGES * PAGE, SIGCHLD, &guest), "clone");
    NEED(!munmap(stack, STACK_PAGES * PAGE));
}

// No hook sees it. The child may end by SIGSEGV, as its stack may be missing; it must not read zeroes.
void op_rawfork(Worker *w, Region *r) {
    struct clone_args how = {.exit_signal = SIGCHLD};
    int status;
    pid_t pid = below(w, 2) ? raw(SYS_fork, 0, 0, 0, 0, 0) : raw(SYS_clone3, (long)&how, sizeof how, 0, 0, 0);
    if (!pid) {
        check_region(r, "forked by hand");
        _exit(0);
    }
    NEED(pid > 0);
    for (size_t i = 0; i < r->pages; i += 3) put(w, r, i);
    while (waitpid(pid, &status, 0) < 0) NEED(errno == EINTR);
    if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV))
        end(1, "fork by hand: child %d ended with status %x", pid, status);
    check_region(r, "after a fork by hand");
}

// --- children that share the memory ------------------------------------------------------------

void op_vfork(Worker *w, Region *r) {
    pid_t pid = vfork();
    if (!pid) {
        check_region(r, "vfork");
        for (size_t i = 0; i < r->pages; i += 3) put(w, r, i);
        _exit(0);
    }
    wait_for(pid, "vfork");
    check_region(r, "after vfork");
}

static int in_guest(void *argument) {
    Guest *guest = argument;
    for (size_t i = 0; i < guest->r->pages; i += 2) check(guest->r, i, "guest"), put(guest->w, guest->r, i);
    check_region(guest->r, "guest");
    return 0;
}

// A process in this one's memory.
void op_vmchild(Worker *w, Region *r) {
    Guest guest = {.w = w, .r = r};
    char *stack = map(STACK_PAGES);
    pid_t pid = clone(in_guest, stack + STACK_PAGES * PAGE, CLONE_VM | SIGCHLD, &guest);
    wait_for(pid, "a process in the same memory");
    check_region(r, "after a process in the same memory");
    NEED(!munmap(stack, STACK_PAGES * PAGE));
}

static int in_heir(void *argument) {
    Guest *guest = argument;
    char letter;
    // Its parent alone holds the other end, until it is gone.
    close(guest->hold[1]);
    while (read(guest->hold[0], &letter, 1) < 0) NEED(errno == EINTR);
    check_region(guest->r, "heir");
    for (size_t i = 0; i < guest->r->pages; i += 2) put(guest->w, guest->r, i);
    check_region(guest->r, "heir, written");
    NEED(write(guest->verdict, "y", 1) == 1);
    return 0;
}

static void await_verdict(int from, const char *what) {
    struct pollfd ready = {.fd = from, .events = POLLIN};
    char verdict = 0;
    int heard;
    while ((heard = poll(&ready, 1, PATIENCE_MS)) < 0) NEED(errno == EINTR);
    if (!heard) end(1, "%s: hangs", what);
    ssize_t got;
    while ((got = read(from, &verdict, 1)) < 0) NEED(errno == EINTR);
    if (got != 1 || verdict != 'y') end(1, "%s: came to a bad end", what);
}

// A child whose own child has its memory and outlives it.
void op_outlive(Worker *w, Region *r) {
    int ends[2];
    pthread_rwlock_rdlock(&descriptors);
    NEED(!pipe2(ends, O_CLOEXEC));
    pid_t pid = fork();
    if (!pid) {
        Guest guest = {.w = w, .r = r, .verdict = ends[1]};
        NEED(!pipe2(guest.hold, O_CLOEXEC));
        char *stack = map(STACK_PAGES);
        check(r, below(w, r->pages), "before the heir");
        NEED(clone(in_heir, stack + STACK_PAGES * PAGE, CLONE_VM | SIGCHLD, &guest) > 0);
        if (below(w, 2)) execl("/bin/true", "true", (char *)0);
        _exit(0);
    }
    close(ends[1]);
    wait_for(pid, "outlived");
    await_verdict(ends[0], "heir");
    close(ends[0]);
    pthread_rwlock_unlock(&descriptors);
}

// A child that ends before its own child does; the pipe tells when that one is done.
void op_orphan(Worker *w, Region *r) {
    int ends[2];
    pthread_rwlock_rdlock(&descriptors);
    NEED(!pipe(ends));
    pid_t pid = fork();
    if (!pid) {
        check(r, below(w, r->pages), "in between");
        if (fork()) _exit(0);
        close(ends[0]);
        in_child(w, r, "grandchild");
        NEED(write(ends[1], "y", 1) == 1);
        _exit(0);
    }
    close(ends[1]);
    wait_for(pid, "orphan");
    await_verdict(ends[0], "grandchild");
    close(ends[0]);
    pthread_rwlock_unlock(&descriptors);
}

// --- programs ----------------------------------------------------------------------------------

static char *const inner[] = {"torture", "-s", "0.2", "-t", "2", "-m", "12", "-o", "rw,dontneed,mremap", 0};
extern char **environ;

void op_exec(Worker *w, Region *r) {
    pid_t pid = fork();
    if (!pid) {
        check(r, below(w, r->pages), "before exec");
        if (below(w, 2)) execv(self_path, inner);
        raw(SYS_execve, (long)self_path, (long)inner, (long)environ, 0, 0);
        end(2, "exec: errno %d", errno);
    }
    wait_for(pid, "exec");
}

void op_spawn(Worker *w, Region *r) {
    pid_t pid;
    NEED(!posix_spawn(&pid, self_path, 0, 0, inner, environ));
    op_rw(w, r);
    wait_for(pid, "spawn");
}

// --- what a child shall not have ---------------------------------------------------------------

// The child finds zeroes, the parent everything.
void op_wipe(Worker *w, Region *r) {
    size_t from, count;
    part(w, r, &from, &count);
    if (advise_somehow(w, at(r, from), count * PAGE, MADV_WIPEONFORK)) {
        NEED(errno == EINVAL); // Pages of a file.
        return op_rw(w, r);
    }
    check_beside(r, from, count, "beside what is wiped");
    pid_t pid = fork();
    if (!pid) {
        zero_tags(r, from, count);
        end_child(w, r, "wiped");
    }
    beside_child(w, r, pid, "wipe");
    NEED(!advise_somehow(w, at(r, from), count * PAGE, MADV_KEEPONFORK));
}

// The child has a hole there.
void op_dontfork(Worker *w, Region *r) {
    size_t from, count;
    unsigned char there[PART_MAX];
    part(w, r, &from, &count);
    NEED(!advise_somehow(w, at(r, from), count * PAGE, MADV_DONTFORK));
    pid_t pid = fork();
    if (!pid) {
        NEED(mincore(at(r, from), count * PAGE, there) && errno == ENOMEM);
        for (size_t i = 0; i < r->pages; i++)
            if (i < from || i >= from + count) check(r, i, "beside a hole");
        _exit(0);
    }
    beside_child(w, r, pid, "dontfork");
    NEED(!advise_somehow(w, at(r, from), count * PAGE, MADV_DOFORK));
}

// --- children that are confined ----------------------------------------------------------------

static void fork_again(Worker *w, Region *r, const char *what) {
    pid_t pid = fork();
    if (!pid) end_child(w, r, what);
    wait_for(pid, what);
    end_child(w, r, what);
}

// In a namespace of its own, from its beginning or by unshare.
void op_namespace(Worker *w, Region *r) {
    static const int flags[] = {CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP, CLONE_NEWPID, CLONE_NEWUSER};
    int flag = flags[below(w, sizeof flags / sizeof *flags)], unshares = flag != CLONE_NEWUSER && below(w, 2);
    // The exit code of a child that may not.
    enum { MAY_NOT = 77 };
    int status;
    pid_t pid = unshares ? fork() : syscall(SYS_clone, flag | SIGCHLD, 0, 0, 0, 0);
    if (!pid) {
        if (unshares && unshare(flag)) _exit(MAY_NOT);
        if (unshares) fork_again(w, r, "in a namespace");
        end_child(w, r, "in a namespace");
    }
    if (pid < 0) {
        NEED(errno == EPERM || errno == ENOSPC || errno == EINVAL);
        not_here = 1;
        return;
    }
    while (waitpid(pid, &status, 0) < 0) NEED(errno == EINTR);
    not_here = WIFEXITED(status) && WEXITSTATUS(status) == MAY_NOT;
    if (status && !not_here) end(1, "namespace %x: child %d ended with status %x", flag, pid, status);
    check_region(r, "after a namespace");
}

// Refuses what neither a program nor its pager needs.
static int install_filter(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_acct, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

void op_seccomp(Worker *w, Region *r) {
    pid_t pid = fork();
    if (!pid) {
        NEED(!install_filter());
        fork_again(w, r, "under a filter");
    }
    beside_child(w, r, pid, "seccomp");
}

// Without root's rights, and without /proc.
void op_confine(Worker *w, Region *r) {
    if (getuid()) {
        not_here = 1;
        return;
    }
    int root = below(w, 2);
    pid_t pid = fork();
    if (!pid) {
        if (root) NEED(!chroot(directory) && !chdir("/"));
        else NEED(!setgid(65534) && !setuid(65534));
        fork_again(w, r, "confined");
    }
    beside_child(w, r, pid, "confine");
}
