/* What a program that fits can still do, and what becomes of one that leaves its session's reach.
 *
 * alone watch MIB          touches MIB in steps, prints its threads and descriptors at each, then enters a
 *                          new user namespace
 * alone fill MIB [READY]   touches MIB, checks it; with READY makes that file, waits for READY.again, and
 *                          checks 100 times more
 * alone exec MIB COMMAND.. touches MIB, tries to execute what does not exist, then COMMAND
 * alone forks MIB          touches MIB, changes its root to where there is no /proc, and forks
 * alone leave HOW A B      touches A MIB, leaves by HOW, touches B MIB more, checks all
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1 << 20)

static void fail(const char *what) {
    fprintf(stderr, "alone: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Prints the entries of a directory of /proc, where `path` says so with what they lead to. */
static void list(const char *path, int links) {
    DIR *directory = opendir(path);
    if (!directory)
        fail(path);
    struct dirent *entry;
    while ((entry = readdir(directory))) {
        char name[300], target[300] = "";
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(directory))
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (links && readlink(name, target, sizeof target - 1) < 0)
            fail(name);
        printf(links ? " %s:%s" : " %s", links ? entry->d_name : "thread", target);
    }
    closedir(directory);
}

static uint64_t *fill(size_t mib, uint64_t seed) {
    size_t words = mib * MIB / 8;
    uint64_t *memory = mmap(0, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    for (size_t i = 0; i < words; i += 64)
        memory[i] = i * 0x9e3779b97f4a7c15 + seed;
    return memory;
}

static void check(const uint64_t *memory, size_t mib, uint64_t seed) {
    for (size_t i = 0; i < mib * MIB / 8; i += 64)
        if (memory[i] != i * 0x9e3779b97f4a7c15 + seed) {
            fprintf(stderr, "alone: a wrong word\n");
            exit(2);
        }
}

static void watch(size_t mib) {
    for (size_t done = 0; done < mib; done += 4) {
        fill(4, done);
        printf("%zu:", done);
        list("/proc/self/task", 0);
        list("/proc/self/fd", 1);
        printf("\n");
    }
    int unshared = unshare(CLONE_NEWUSER);
    printf("%s\n", unshared == 0 ? "unshared" : strerror(errno));
}

/* Goes on in a child of a new pid namespace that has a /proc of its own. */
static void new_pids(void) {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0)
        fail("unshare");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child > 0) {
        int status;
        waitpid(child, &status, 0);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    if (mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) < 0 || mount("proc", "/proc", "proc", 0, 0) < 0)
        fail("mount");
}

static void leave(const char *how) {
    if (!strcmp(how, "user")) {
        if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
            fail("setresuid");
    } else if (!strcmp(how, "root")) {
        char directory[] = "/var/tmp/alone-XXXXXX";
        if (!mkdtemp(directory) || chroot(directory) < 0)
            fail("chroot");
        /* The root of this process alone. */
        if (chdir("/") < 0)
            fail("chdir");
        printf("%s\n", directory);
    } else if (!strcmp(how, "userns")) {
        if (unshare(CLONE_NEWUSER) < 0)
            fail("unshare");
    } else if (!strcmp(how, "pidns")) {
        new_pids();
    } else if (!strcmp(how, "nothing")) {
    } else {
        errno = EINVAL;
        fail(how);
    }
}

int main(int argc, char **argv) {
    size_t mib = argc > 2 ? atoi(argv[2]) : 0;
    if (argc == 3 && !strcmp(argv[1], "watch")) {
        watch(mib);
    } else if (argc >= 3 && !strcmp(argv[1], "fill")) {
        const uint64_t *memory = fill(mib, 1);
        check(memory, mib, 1);
        if (argc > 3) {
            char again[4096];
            snprintf(again, sizeof again, "%s.again", argv[3]);
            fclose(fopen(argv[3], "w"));
            while (access(again, F_OK) < 0)
                usleep(20000);
            for (int times = 0; times < 100; times++)
                check(memory, mib, 1);
        }
    } else if (argc > 3 && !strcmp(argv[1], "exec")) {
        const uint64_t *memory = fill(mib, 2);
        char *nothing[] = {"nothing", 0};
        execv("/nonexistent/program", nothing);
        check(memory, mib, 2);
        execvp(argv[3], argv + 3);
        fail(argv[3]);
    } else if (argc == 3 && !strcmp(argv[1], "forks")) {
        const uint64_t *memory = fill(mib, 5);
        leave("root");
        fflush(stdout);
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        check(memory, mib, 5);
        if (child > 0 && waitpid(child, 0, 0) < 0)
            fail("waitpid");
    } else if (argc == 5 && !strcmp(argv[1], "leave")) {
        size_t before = atoi(argv[3]), after = atoi(argv[4]);
        const uint64_t *first = fill(before, 3);
        leave(argv[2]);
        const uint64_t *second = fill(after, 4);
        check(first, before, 3);
        check(second, after, 4);
    } else {
        fprintf(stderr, "alone: wrong arguments\n");
        return 64;
    }
    return 0;
}
