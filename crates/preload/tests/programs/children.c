// Every way to have a child: it finds its memory, its own count and its exit code.
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <spawn.h>

static int value = 1;

static void use_memory(void) {
    char *block = malloc(8 << 20);
    memset(block, value, 8 << 20);
    CHECK(block[4 << 20] == value);
    free(block);
}

static int clone_main(void *argument) {
    CHECK(argument == &value && value == 5);
    use_memory();
    value = 6;
    return 43;
}

int main(void) {
    char *kept = malloc(16 << 20);
    memset(kept, 9, 16 << 20);

    value = 2;
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(kept[12 << 20] == 9 && value == 2);
        use_memory();
        pid_t grandchild = fork();
        if (grandchild == 0)
            exit(21);
        CHECK(exit_code_of(grandchild) == 21);
        exit(41);
    }
    CHECK(exit_code_of(pid) == 41);

    value = 3;
    pid = syscall(SYS_fork);
    if (pid == 0) {
        use_memory();
        _exit(42);
    }
    CHECK(exit_code_of(pid) == 42);

    value = 4;
    pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        use_memory();
        _exit(42);
    }
    CHECK(exit_code_of(pid) == 42);

    value = 5;
    char *stack = mmap(NULL, 256 << 10, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    CHECK(stack != MAP_FAILED);
    pid = clone(clone_main, stack + (256 << 10), SIGCHLD, &value);
    CHECK(pid > 0 && exit_code_of(pid) == 43 && value == 5);
    errno = 0;
    CHECK(clone(NULL, stack, SIGCHLD, NULL) == -1 && errno == EINVAL);
    pid = clone(clone_main, stack + (256 << 10), CLONE_VM | CLONE_VFORK | SIGCHLD, &value);
    CHECK(pid > 0 && exit_code_of(pid) == 43 && value == 6);

    volatile int seen = 0;
    pid = vfork();
    if (pid == 0) {
        seen = 1;
        _exit(44);
    }
    CHECK(exit_code_of(pid) == 44 && seen == 1);

    // Signals that were not blocked are not blocked afterwards.
    sigset_t mask;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0 && !sigismember(&mask, SIGUSR1));
    CHECK(kept[15 << 20] == 9);
    use_memory();
    return 0;
}
