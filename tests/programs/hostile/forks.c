// Every way to fork while most of the memory is paged out: the child has all of it, and a copy of its own.
//
// libc, number, clone, clone-stack, libc-clone, clone3, clone3-pidfd, clone3-stack: as a program calls them.
// raw-fork, raw-clone, raw-clone-stack, raw-clone3: by a `syscall` instruction, which no hook sees. There the
// child may end by SIGSEGV at its first touch, told as "promised"; it must not read zeroes.
#include "hostile.h"
#include <linux/sched.h>

enum { STACK_PAGES = 64 };
static char *stack;

static void in_child(void) {
    child_work();
    _exit(0);
}

static int in_cloned_child(void *argument) {
    (void)argument;
    child_work();
    return 0;
}

// The end of a stack in memory that is paged out by now; libc's `syscall` returns to `in_child` from there.
static char *stack_end(void) {
    char *top = stack + (STACK_PAGES - 1) * PAGE;
    *(void (**)(void))top = in_child;
    verify_all("before the clone");
    return top;
}

static long raw_clone_on(char *top) {
    long result;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%ebp, %%ebp\n\tcall *%[entry]\n\tud2\n1:"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"((long)SIGCHLD), "S"(top), "d"(0l), "r"(r10), "r"(r8), [entry] "b"(in_child)
                     : "rcx", "r11", "memory");
    return result;
}

__attribute__((always_inline)) static inline long forked(struct clone_args *arguments, int *pidfd) {
    if (is("libc")) return fork();
    if (is("number")) return syscall(SYS_fork);
    if (is("clone")) return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (is("clone-stack")) return syscall(SYS_clone, SIGCHLD, stack_end(), 0, 0, 0);
    if (is("libc-clone")) return clone(in_cloned_child, stack_end(), SIGCHLD, 0);
    if (is("clone3")) return syscall(SYS_clone3, arguments, sizeof *arguments);
    if (is("clone3-pidfd")) {
        arguments->flags = CLONE_PIDFD, arguments->pidfd = (uintptr_t)pidfd;
        return syscall(SYS_clone3, arguments, sizeof *arguments);
    }
    if (is("clone3-stack")) {
        arguments->stack = (uintptr_t)stack, arguments->stack_size = stack_end() - stack;
        return syscall(SYS_clone3, arguments, sizeof *arguments);
    }
    if (is("raw-fork")) return raw(SYS_fork, 0, 0, 0, 0, 0, 0);
    if (is("raw-clone")) return raw(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    if (is("raw-clone-stack")) return raw_clone_on(stack_end());
    if (is("raw-clone3")) return raw(SYS_clone3, (long)arguments, sizeof *arguments, 0, 0, 0, 0);
    end(2, "no such variant");
}

int main(int count, char **arguments) {
    begin(count, arguments);
    stack = map(STACK_PAGES);
    arena(arguments);
    static struct clone_args how = {.exit_signal = SIGCHLD};
    static int pidfd = -1;
    long pid = forked(&how, &pidfd);
    if (!pid) in_child();
    NEED(pid > 0);
    for (size_t i = 0; i < pages; i += 5) put(i);
    int status = await(pid), unseen = !strncmp(variant, "raw", 3);
    if (unseen && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) printf("promised: the child has no managed memory\n");
    else if (status) end(status == 0x100 ? 1 : 2, "the child ended with status %x", status);
    if (is("clone3-pidfd")) NEED(pidfd > 2 && fcntl(pidfd, F_GETFD) == FD_CLOEXEC);
    return done();
}
