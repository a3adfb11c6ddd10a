// Asks what CPUs threads and programs may use that begin while their maker waits for pages.
//
//   cpus MIB [ROUNDS [THREADS]]
//
// A pager below may bind a thread to a CPU while it faults again and again. What the thread starts then, and
// what it asks or sets, must not show it, and it must be let go when it faults no more. MIB of memory are touched all the time, page by page,
// by the first thread and by THREADS others.
// Exit code 1: somebody had other CPUs than the program began with, counted on standard error by what
// was done. 2: a call failed. On one CPU it does nothing, and says so with exit code 77.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, TOUCHES = 24, ARGUMENTS = 24, THREADS_MAX = 16 };
enum { THREAD, SPAWN, VFORK, EXEC, FORK, ASKED, SET, KEPT, KINDS };
static const char *const names[] = {"pthread_create", "posix_spawn", "vfork", "execve", "fork", "sched_getaffinity", "sched_setaffinity",
                                    "kept"};

static size_t pages;
static char *memory, *self;
static __thread uint64_t state = 88172645463325252ull;
static unsigned wrong[KINDS];
static cpu_set_t all;
extern char **environ;

#define NEED(condition) ((condition) ? (void)0 : need(#condition, __LINE__))
static void need(const char *what, int line) {
    fprintf(stderr, "cpus: line %d: %s: errno %d\n", line, what, errno);
    exit(2);
}

static void touch(void) {
    for (int i = 0; i < TOUCHES; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        *(volatile uint64_t *)(memory + state % pages * PAGE) += 1;
    }
}

// The kernel's answer, by no function of libc's.
static int differs(void) {
    cpu_set_t set;
    long result;
    memset(&set, 0, sizeof set);
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_sched_getaffinity), "D"(0), "S"(sizeof set), "d"(&set)
                     : "rcx", "r11", "memory");
    return result < 0 || !CPU_EQUAL(&set, &all);
}

static void *thread(void *argument) {
    (void)argument;
    return (void *)(intptr_t)differs();
}

// Many arguments, each on a page of its own: the kernel reads them while it executes.
static void arguments(char **to) {
    int count = 0;
    to[count++] = self, to[count++] = "check";
    for (int i = 0; i < ARGUMENTS; i++) to[count++] = memory + i * (pages / ARGUMENTS) * PAGE + 1024;
    to[count] = 0;
}

static int status_of(pid_t pid) {
    int status;
    NEED(pid > 0);
    while (waitpid(pid, &status, 0) < 0) NEED(errno == EINTR);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) fprintf(stderr, "cpus: status %x\n", status), exit(2);
    return WEXITSTATUS(status);
}

static void round_of(unsigned number) {
    char *arg[ARGUMENTS + 3];
    pthread_t other;
    void *answer;
    pid_t pid;
    arguments(arg);
    touch();
    NEED(!pthread_create(&other, 0, thread, 0));
    NEED(!pthread_join(other, &answer));
    wrong[THREAD] += answer != 0;
    touch();
    cpu_set_t set;
    NEED(!sched_getaffinity(0, sizeof set, &set));
    wrong[ASKED] += !CPU_EQUAL(&set, &all);
    if (number % 4) return;
    touch();
    NEED(!posix_spawn(&pid, self, 0, 0, arg, environ));
    wrong[SPAWN] += status_of(pid);
    touch();
    if (!(pid = vfork())) {
        execve(self, arg, environ);
        _exit(2);
    }
    wrong[VFORK] += status_of(pid);
    if (number % 16) return;
    touch();
    if (!(pid = fork())) _exit(differs());
    wrong[FORK] += status_of(pid);
    if (!(pid = fork())) {
        touch();
        execve(self, arg, environ);
        _exit(2);
    }
    wrong[EXEC] += status_of(pid);
}

static unsigned stop, over;

static void *toucher(void *number) {
    state += (uintptr_t)number;
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) touch();
    return 0;
}

// Sets the CPUs of the main thread, which touches pages meanwhile, and looks whether that stays.
static void *setter(void *argument) {
    pid_t tid = (pid_t)(intptr_t)argument;
    cpu_set_t one, set;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one), cpu = CPU_SETSIZE;
    for (unsigned i = 0; i < 200; i++) {
        const cpu_set_t *wanted = i % 2 ? &all : &one;
        NEED(!sched_setaffinity(tid, sizeof set, wanted));
        usleep(300);
        NEED(!sched_getaffinity(tid, sizeof set, &set));
        wrong[SET] += !CPU_EQUAL(&set, wanted);
        if (i % 2) usleep(3000); // Long enough to be followed again.
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    return 0;
}

// The same after ten seconds without a fault.
static int kept(void) {
    for (int i = 0; i < 1000; i++) touch();
    time_t end = time(0) + 10;
    while (differs())
        if (time(0) > end) return 1;
    return 0;
}

int main(int argc, char **argv) {
    self = "/proc/self/exe";
    NEED(!sched_getaffinity(0, sizeof all, &all));
    if (argc > 2 && !strcmp(argv[1], "check")) {
        const char *text = getenv("CPUS_COUNT");
        return !text || CPU_COUNT(&all) != atoi(text);
    }
    if (CPU_COUNT(&all) < 2) return 77;
    char count[16];
    snprintf(count, sizeof count, "%d", CPU_COUNT(&all));
    setenv("CPUS_COUNT", count, 1);
    pages = ((argc > 1 ? strtoul(argv[1], 0, 0) : 64) << 20) / PAGE;
    memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(memory != MAP_FAILED);
    for (size_t i = 0; i < pages; i++) *(uint64_t *)(memory + i * PAGE) = i;
    int threads = argc > 3 ? atoi(argv[3]) : 0;
    pthread_t touchers[THREADS_MAX];
    NEED(threads >= 0 && threads <= THREADS_MAX);
    for (int i = 0; i < threads; i++) NEED(!pthread_create(&touchers[i], 0, toucher, (void *)(intptr_t)(i + 1)));
    for (unsigned i = 0, rounds = argc > 2 ? atoi(argv[2]) : 100; i < rounds; i++) round_of(i);
    pthread_t other;
    NEED(!pthread_create(&other, 0, setter, (void *)(intptr_t)gettid()));
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) touch();
    wrong[KEPT] += kept();
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < threads; i++) NEED(!pthread_join(touchers[i], 0));
    unsigned sum = 0;
    for (int i = 0; i < KINDS; i++) {
        sum += wrong[i];
        if (wrong[i]) fprintf(stderr, "cpus: %s: %u times\n", names[i], wrong[i]);
    }
    puts("done");
    return sum != 0;
}
