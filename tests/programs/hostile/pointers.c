// Pointers at which nothing lies: the kernel's errors, and the program goes on.
//
// clone: the places that clone and clone3 write to, and the structures that they read. exec: lists and strings of execve that run into an
// unmapped page. socket: the value of an option. advice: advice over a hole.
#include "hostile.h"
#include <linux/sched.h>
#include <netinet/in.h>
#include <sys/socket.h>

// The end of a page behind which nothing can be read, nor mapped by others.
static char *edge;

static void find_edge(void) {
    char *place = map(3);
    NEED(!mprotect(place + PAGE, 2 * PAGE, PROT_NONE));
    edge = place + PAGE;
}

static long make(struct clone_args *asked) {
    long child = syscall(SYS_clone3, asked, sizeof *asked);
    if (!child) {
        verify_all("child");
        _exit(0);
    }
    return child;
}

// The child is made, though its number cannot be stored.
static void made(struct clone_args *asked) {
    asked->exit_signal = SIGCHLD;
    long child = make(asked);
    NEED(child > 0);
    NEED(!await(child));
}

static void refused(struct clone_args *asked, int number) {
    asked->exit_signal = SIGCHLD;
    REFUSED(make(asked), number);
}

// Places in pages that are out, or shall be: each is written.
static void places(void) {
    for (size_t i = 7; i < pages; i += 401) {
        pid_t *number = (pid_t *)at(i), *own = (pid_t *)(at(i * 7 % pages) + 128), *fd = (pid_t *)(at(i * 13 % pages) + 256);
        struct clone_args asked = {.flags = CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_PIDFD,
                                   .parent_tid = (uint64_t)number,
                                   .child_tid = (uint64_t)own,
                                   .pidfd = (uint64_t)fd,
                                   .exit_signal = SIGCHLD};
        long child = syscall(SYS_clone3, &asked, sizeof asked);
        if (!child) _exit(*own != getpid());
        NEED(child > 0);
        NEED(!await(child));
        NEED(*number == child && *fd > 2 && !close(*fd));
        put(i), put(i * 7 % pages), put(i * 13 % pages);
    }
}

static void clones(void) {
    places();
    uint64_t bad[] = {(uint64_t)edge, 8, (uint64_t)edge - 2};
    for (int i = 0; i < 3; i++) {
        REFUSED(syscall(SYS_clone3, bad[i], sizeof(struct clone_args)), EFAULT);
        made(&(struct clone_args){.flags = CLONE_PARENT_SETTID, .parent_tid = bad[i]});
        made(&(struct clone_args){.flags = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, .child_tid = bad[i] & ~3});
        refused(&(struct clone_args){.flags = CLONE_PIDFD, .pidfd = bad[i]}, EFAULT);
        refused(&(struct clone_args){.set_tid = bad[i], .set_tid_size = 1}, EFAULT);
    }
    uint64_t place = (uint64_t)edge - 8;
    refused(&(struct clone_args){.flags = CLONE_PIDFD | CLONE_PARENT_SETTID, .pidfd = place, .parent_tid = place}, EINVAL);
    refused(&(struct clone_args){.set_tid = place, .set_tid_size = 99}, EINVAL);
    refused(&(struct clone_args){.stack = place}, EINVAL);
    refused(&(struct clone_args){.stack_size = PAGE}, EINVAL);
    REFUSED(syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, place, 0, 0), EINVAL);
    // A structure of a newer kernel that asks for nothing new, and for something.
    uint64_t newer[32] = {[4] = SIGCHLD};
    long child = syscall(SYS_clone3, newer, sizeof newer);
    if (!child) {
        verify_all("child of a longer structure");
        _exit(0);
    }
    NEED(child > 0);
    NEED(!await(child));
    newer[31] = 1;
    REFUSED(syscall(SYS_clone3, newer, sizeof newer), E2BIG);
}

static void executions(void) {
    char *argv[] = {"true", 0};
    char **list = (char **)(edge - 2 * sizeof(char *));
    list[0] = "A=1", list[1] = "B=2";
    REFUSED(execve("/bin/true", argv, list), EFAULT);
    REFUSED(execve("/bin/true", list, environ), EFAULT);
    char *strings[] = {"A=1", edge - 3, 0};
    memset(edge - 3, 'x', 3);
    REFUSED(execve("/bin/true", argv, strings), EFAULT);
    strings[1] = (char *)8;
    REFUSED(execve("/bin/true", argv, strings), EFAULT);
    REFUSED(execve(edge - 3, argv, environ), EFAULT);
    REFUSED(syscall(SYS_execveat, AT_FDCWD, "/bin/true", argv, list, 0), EFAULT);
    pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        char *last[] = {edge - 3, 0};
        memcpy(edge - 3, "C=", 3);
        execve("/bin/true", argv, last);
        _exit(1);
    }
    NEED(!await(child));
}

static void sockets(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    NEED(fd >= 0);
    REFUSED(setsockopt(fd, SOL_SOCKET, 60, edge, 4), EFAULT);
    REFUSED(setsockopt(fd, SOL_SOCKET, 60, edge - 2, 4), EFAULT);
    REFUSED(setsockopt(fd, SOL_SOCKET, 60, (void *)8, 4), EFAULT);
    NEED(!close(fd));
}

static void advised(void) {
    char *hole = map(32);
    for (size_t i = 0; i < 32; i++) fill_at(hole + i * PAGE, i, 1);
    NEED(!munmap(hole + 16 * PAGE, PAGE));
    int advice[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, 20, 21};
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++) {
        REFUSED(madvise(hole, 32 * PAGE, advice[i]), ENOMEM);
        NEED(!madvise(hole, 16 * PAGE, advice[i]));
    }
    if (madvise(hole, PAGE, 22) && errno == EINVAL) end(77, "no MADV_POPULATE_READ");
    for (int populate = 22; populate <= 23; populate++) {
        REFUSED(madvise(hole, 32 * PAGE, populate), ENOMEM);
        NEED(!madvise(hole + 17 * PAGE, 15 * PAGE, populate));
    }
    for (size_t i = 0; i < 32; i++)
        if (i != 16) verify_at(hole + i * PAGE, i, 1, "advised");
}

int main(int count, char **arguments) {
    begin(count, arguments);
    find_edge();
    // Before paging begins, then while pages are out.
    for (int paged = 0; paged < 2; paged++) {
        if (is("clone")) clones();
        if (is("exec")) executions();
        if (is("socket")) sockets();
        if (is("advice")) advised();
        if (!paged) arena(arguments);
    }
    return done();
}
