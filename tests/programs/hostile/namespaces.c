// Namespaces of their own for the program and its children.
//
// mount, network, ipc, uts, cgroup, time: unshare while paging, then a fork. user: unshare of a user namespace, which
// needs one thread: EINVAL is right as well. pid: unshare of a pid namespace, whose first process is the next child.
// clone-pid, clone-user, clone-mount: a fork into one by the system call clone. user-before, pid-before: before paging
// began; there one line that says that the process has no limit is right as well.
#include "hostile.h"
#include <linux/sched.h>

static const struct { const char *name; int flag; } kinds[] = {
    {"mount", CLONE_NEWNS},   {"network", CLONE_NEWNET}, {"ipc", CLONE_NEWIPC},  {"uts", CLONE_NEWUTS},
    {"cgroup", CLONE_NEWCGROUP}, {"time", CLONE_NEWTIME}, {"user", CLONE_NEWUSER}, {"pid", CLONE_NEWPID},
};

static int flag_of(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strncmp(name, kinds[i].name, strlen(kinds[i].name))) return kinds[i].flag;
    end(2, "no such variant");
}

static void leave(int flag) {
    if (!unshare(flag)) return;
    if (flag == CLONE_NEWUSER && errno == EINVAL) return;
    missing("unshare");
}

int main(int count, char **arguments) {
    begin(count, arguments);
    int before = strstr(variant, "-before") != 0, cloned = !strncmp(variant, "clone-", 6);
    int flag = flag_of(cloned ? variant + 6 : variant);
    if (before) {
        leave(flag);
        pid_t pid = fork();
        if (!pid) {
            arena(arguments);
            fork_and_verify();
            _exit(done());
        }
        need_right(pid);
        return 0;
    }
    arena(arguments);
    if (!cloned) leave(flag);
    verify_all("in the namespace");
    if (cloned) {
        pid_t pid = syscall(SYS_clone, flag | SIGCHLD, 0, 0, 0, 0);
        if (!pid) {
            child_work();
            fork_and_verify();
            _exit(0);
        }
        if (pid < 0) missing("clone");
        parent_work(pid);
        return done();
    }
    fork_and_verify();
    return done();
}
