// Children that share the memory for a while, and programs that are started: the parent has lost nothing.
//
// vfork: the child verifies and writes all of the memory. raw: the same by a `syscall` instruction. exec: vfork, then
// a program that pages itself. spawn: posix_spawn of one. clone: CLONE_VM and CLONE_VFORK, on a stack of its own.
#include "hostile.h"

extern char **environ;
static char *self;
static char *again[] = {"vfork", "32", "fill", 0};

static int in_child(void *argument) {
    (void)argument;
    verify_all("child");
    for (size_t i = 0; i < pages; i += 3) put(i);
    verify_all("child, written");
    return 0;
}

int main(int count, char **arguments) {
    begin(count, arguments);
    arena(arguments);
    if (is("fill")) return done();
    self = "/proc/self/exe";
    pid_t pid = -1;
    if (is("vfork") || is("exec")) {
        pid = vfork();
        if (!pid && is("exec")) execv(self, again), _exit(9);
        if (!pid) _exit(in_child(0));
    } else if (is("raw")) {
        pid = raw(SYS_vfork, 0, 0, 0, 0, 0, 0);
        if (!pid) _exit(in_child(0));
    } else if (is("spawn")) {
        NEED(!posix_spawn(&pid, self, 0, 0, again, environ));
    } else if (is("clone")) {
        char *stack = map(64);
        verify_all("before the clone");
        pid = clone(in_child, stack + 64 * PAGE, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
    }
    NEED(pid > 0);
    need_right(pid);
    verify_all("parent");
    fork_and_verify();
    return done();
}
