// Stands between a program's pager and the kernel, and has one system call fail, once.
//
//   inject count FILE PROGRAM [ARGUMENT...]
//   inject CALL NUMBER HOW FILE PROGRAM [ARGUMENT...]
//
// Counts the calls of threads whose names begin with "outpage" and writes them to FILE, one line a kind: `CALL COUNT`. A CALL is the
// number of a system call, for ioctl, fcntl, madvise and futex with the command behind a colon, in hexadecimal.
// HOW: an error number, with which the NUMBERth CALL (from 1) returns without having been made; or `short`: the kernel is
// asked for half of it. Then FILE says whether the call came to pass: `struck` or nothing.
// Ends as the program does. Exit code 77: this process may not be traced.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4096, KINDS = 1024 };

struct thread {
    pid_t id;
    int ours, inside, struck;
};
struct kind {
    long call, command;
    unsigned long count;
};

static struct thread threads[THREADS];
static struct kind kinds[KINDS];
static size_t threads_count, kinds_count;
static long the_call = -1, the_command, the_number, the_error;
static int halve, struck;

static struct thread *find(pid_t id) {
    for (size_t i = 0; i < threads_count; i++)
        if (threads[i].id == id) return &threads[i];
    if (threads_count == THREADS) exit(3);
    threads[threads_count] = (struct thread){.id = id};
    return &threads[threads_count++];
}

// A pager that is traced goes on where its tracer is not told of it, unless a filter may want the tracer. This one wants nothing.
static int filter(void) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = 1, .filter = &all};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int is_pagers(pid_t id) {
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", id);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int ours = fgets(name, sizeof name, file) && !strncmp(name, "outpage", 7);
    fclose(file);
    return ours;
}

static long command_of(const struct user_regs_struct *r) {
    switch (r->orig_rax) {
    case SYS_ioctl: case SYS_fcntl: case SYS_futex: return (unsigned)r->rsi;
    case SYS_madvise: return (unsigned)r->rdx;
    default: return -1;
    }
}

static struct kind *kind_of(long call, long command) {
    for (size_t i = 0; i < kinds_count; i++)
        if (kinds[i].call == call && kinds[i].command == command) return &kinds[i];
    if (kinds_count == KINDS) exit(3);
    kinds[kinds_count] = (struct kind){call, command, 0};
    return &kinds[kinds_count++];
}

// The kernel is to do less: fewer vectors, or fewer bytes where there is one.
static void ask_for_half(pid_t id, struct user_regs_struct *r) {
    if (r->orig_rax == SYS_preadv || r->orig_rax == SYS_pwritev || r->orig_rax == SYS_readv || r->orig_rax == SYS_writev) {
        if (r->rdx > 1) {
            r->rdx /= 2;
        } else {
            // One vector: its length is in the program's memory, for this call only as the frames are asked for anew.
            long bytes = ptrace(PTRACE_PEEKDATA, id, r->rsi + 8, 0);
            ptrace(PTRACE_POKEDATA, id, r->rsi + 8, bytes / 2);
        }
    } else {
        r->rdx /= 2;
    }
}

static void entered(struct thread *thread) {
    struct user_regs_struct r;
    if (ptrace(PTRACE_GETREGS, thread->id, 0, &r)) return;
    struct kind *kind = kind_of(r.orig_rax, command_of(&r));
    kind->count++;
    if (struck || kind->call != the_call || kind->command != the_command || kind->count != (unsigned long)the_number) return;
    struck = 1;
    if (halve) {
        ask_for_half(thread->id, &r);
    } else {
        thread->struck = 1;
        r.orig_rax = -1;
    }
    ptrace(PTRACE_SETREGS, thread->id, 0, &r);
}

static void left(struct thread *thread) {
    struct user_regs_struct r;
    if (!thread->struck || ptrace(PTRACE_GETREGS, thread->id, 0, &r)) return;
    thread->struck = 0;
    r.rax = -the_error;
    ptrace(PTRACE_SETREGS, thread->id, 0, &r);
}

// Lets every thread go on until the first process has ended; returns its status.
static int follow(pid_t first) {
    int status, last = 0;
    for (;;) {
        pid_t id = waitpid(-1, &status, __WALL);
        if (id < 0) return errno == ECHILD ? last : 3 << 8;
        struct thread *thread = find(id);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (id == first) last = status;
            thread->id = -1;
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (signal == (SIGTRAP | 0x80)) {
            thread->inside = !thread->inside;
            // Names come with the first calls: a thread that has its name keeps it.
            if (thread->inside && !thread->ours) thread->ours = is_pagers(id);
            if (thread->ours) (thread->inside ? entered : left)(thread);
            signal = 0;
        } else if (event || signal == SIGSTOP) {
            if (event == PTRACE_EVENT_EXEC) thread->inside = 1;
            signal = 0;
        }
        ptrace(PTRACE_SYSCALL, id, 0, signal);
    }
}

int main(int argc, char **argv) {
    int counts = argc > 3 && !strcmp(argv[1], "count");
    if (!counts && argc < 6) return 2;
    char **program = argv + (counts ? 3 : 5), *rest;
    const char *path = argv[counts ? 2 : 4];
    if (!counts) {
        the_call = strtol(argv[1], &rest, 10);
        the_command = *rest == ':' ? strtol(rest + 1, 0, 16) : -1;
        the_number = atol(argv[2]);
        halve = !strcmp(argv[3], "short");
        the_error = atol(argv[3]);
    }
    pid_t child = fork();
    if (!child) {
        if (filter() || ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(77);
        raise(SIGSTOP);
        execvp(program[0], program);
        _exit(127);
    }
    int status;
    if (waitpid(child, &status, 0) != child) return 3;
    if (!WIFSTOPPED(status)) return WEXITSTATUS(status);
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, options)) return 77;
    find(child);
    ptrace(PTRACE_SYSCALL, child, 0, 0);
    status = follow(child);
    FILE *file = fopen(path, "w");
    if (!file) return 3;
    if (!counts && struck) fprintf(file, "struck\n");
    for (size_t i = 0; counts && i < kinds_count; i++) {
        fprintf(file, "%ld", kinds[i].call);
        if (kinds[i].command >= 0) fprintf(file, ":%lx", kinds[i].command);
        fprintf(file, " %lu\n", kinds[i].count);
    }
    fclose(file);
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}
