// A process that shares its parent's memory (CLONE_VM, no thread, no vfork) and outlives it.
//
// concurrent: both verify at once, then the parent goes on alone. exit, exec, killed: the parent exits, executes
// another program, is killed; then the child verifies and writes all of the memory. forks: the child forks after
// its parent's exit. raw: exit, and the clone is made by a `syscall` instruction.
// The first process looks on; it pages nothing itself.
#include "hostile.h"
#include <sys/prctl.h>

enum { STACK_PAGES = 64, PATIENCE_MS = 30000 };
static int verdict[2], ready[2], hold[2];

static void say(int descriptor, char letter) { NEED(write(descriptor, &letter, 1) == 1); }

// The next letter; 0 when nobody can say one any more.
static char hear(int descriptor) {
    char letter = 0;
    while (read(descriptor, &letter, 1) < 0) NEED(errno == EINTR);
    return letter;
}

static int in_child(void *argument) {
    (void)argument;
    verify(0, pages / 8, "child, first");
    if (is("concurrent")) {
        for (int round = 0; round < 2; round++) verify_all("child");
        return 0;
    }
    // Of this pipe the parent alone holds the end for writing, until it is gone.
    close(hold[1]);
    say(ready[1], 'r');
    NEED(!hear(hold[0]));
    for (int round = 0; round < 2; round++) verify_all("child, alone");
    for (size_t i = 0; i < pages; i += 2) put(i);
    verify_all("child, written");
    if (is("forks")) fork_and_verify();
    say(verdict[1], 'y');
    return 0;
}

static void in_raw_child(void) { _exit(in_child(0)); }

static long raw_clone_on(char *top) {
    long result;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%ebp, %%ebp\n\tcall *%[entry]\n\tud2\n1:"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"((long)(SIGCHLD | CLONE_VM)), "S"(top), "d"(0l), "r"(r10), "r"(r8),
                       [entry] "b"(in_raw_child)
                     : "rcx", "r11", "memory");
    return result;
}

static void parent(char **arguments) {
    arena(arguments);
    char *top = map(STACK_PAGES) + STACK_PAGES * PAGE;
    NEED(!pipe2(ready, O_CLOEXEC) && !pipe2(hold, O_CLOEXEC));
    long pid = is("raw") ? raw_clone_on(top) : clone(in_child, top, CLONE_VM | SIGCHLD, 0);
    NEED(pid > 0);
    if (is("concurrent")) {
        for (int round = 0; round < 2; round++) verify_all("parent");
        need_right(pid);
        verify_all("parent, alone");
        fork_and_verify();
        say(verdict[1], 'y');
        _exit(0);
    }
    close(ready[1]);
    NEED(hear(ready[0]) == 'r');
    if (is("killed")) raise(SIGKILL);
    if (is("exec")) execl("/bin/true", "true", (char *)0);
    _exit(0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    // Whoever is left behind becomes a child of this process.
    NEED(!prctl(PR_SET_CHILD_SUBREAPER, 1) && !pipe2(verdict, O_CLOEXEC));
    pid_t first = fork();
    if (!first) {
        // A group that can be ended when somebody in it hangs.
        NEED(!setpgid(0, 0));
        parent(arguments);
    }
    close(verdict[1]);
    struct pollfd ready_to_read = {.fd = verdict[0], .events = POLLIN};
    int heard = poll(&ready_to_read, 1, PATIENCE_MS);
    char letter = heard > 0 ? hear(verdict[0]) : 0;
    if (!heard) {
        kill(-first, SIGKILL);
        end(1, "the child hangs");
    }
    int status = 0;
    for (pid_t one; (one = waitpid(-1, &status, __WALL)) > 0;)
        if (status && letter != 'y') printf("process %d ended with status %x\n", one, status);
    if (letter != 'y') end(1, "the child did not come to its end");
    return 0;
}
