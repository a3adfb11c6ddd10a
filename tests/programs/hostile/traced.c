// A tracer that follows the program's threads, as a debugger does: it stops all that it is told of, one by one, and has them go on.
//
// stops: threads wait for pages within read(2) meanwhile. steps: while all others are stopped, one touches pages, instruction by instruction.
// alone: the tracer asks to be told of threads and waits for the first one alone, of a program that does not page; its own memory is paged after that.
// attach: as stops, but the tracer comes when the program pages already, which `--debuggable` foresees.
#include "hostile.h"
#include <dirent.h>
#include <sys/ptrace.h>

enum { ROUNDS = 8, STEPS = 400, LONGEST_S = 20, THREADS_MAX = 64, STOPPED = 128 /* PTRACE_EVENT_STOP */ };
static volatile int *over, *first;
static int zero, gate[2];

static size_t draw(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state % pages;
}

static void *reads(void *argument) {
    size_t me = (size_t)argument;
    uint64_t state = 88172645463325252ull + me;
    if (!me) *first = (int)syscall(SYS_gettid);
    while (!*over) {
        size_t i = draw(&state) / 4 * 4 + me;
        // Half of the pages the kernel is the first to touch.
        if (i & 4) verify_at(at(i), i, generation[i], "before");
        NEED(pread(zero, at(i), PAGE, 0) == PAGE);
        generation[i] = 0;
        i = draw(&state) / 4 * 4 + me;
        put(i);
    }
    return 0;
}

static void *touches(void *argument) {
    (void)argument;
    uint64_t state = 88172645463325252ull, sum = 0;
    *first = (int)syscall(SYS_gettid);
    while (!*over) {
        const volatile uint64_t *words = (const volatile uint64_t *)at(draw(&state));
        sum += words[0];
    }
    return (void *)(uintptr_t)sum;
}

static void child(char **arguments) {
    char letter;
    NEED(read(gate[0], &letter, 1) == 1);
    arena(arguments);
    pthread_t threads[4];
    for (size_t n = 0; n < 4; n++)
        NEED(!pthread_create(&threads[n], 0, is("steps") && !n ? touches : reads, (void *)n));
    for (size_t n = 0; n < 4; n++) NEED(!pthread_join(threads[n], 0));
    _exit(done());
}

// The threads that the tracer was told of.
static struct traced {
    pid_t tid;
    int stopped, asked;
} all[THREADS_MAX];
static int ended_as = -1;

static struct traced *find(pid_t tid) {
    struct traced *free = 0;
    for (struct traced *t = all; t < all + THREADS_MAX; t++) {
        if (t->tid == tid) return t;
        if (!t->tid && !free) free = t;
    }
    NEED(free);
    *free = (struct traced){.tid = tid};
    return free;
}

// Takes one report, if there is one. A thread that was not asked to stop goes on.
static int take(pid_t leader) {
    int status;
    pid_t tid = waitpid(-1, &status, __WALL | WNOHANG);
    if (tid <= 0) return 0;
    struct traced *t = find(tid);
    if (!WIFSTOPPED(status)) {
        t->tid = 0;
        if (tid == leader) ended_as = status;
        return 1;
    }
    int event = status >> 16, signal = event || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    t->stopped = 1;
    // Of the one that is stepped, too.
    if (t->asked && (event == STOPPED || WSTOPSIG(status) == SIGTRAP)) return 1;
    t->stopped = 0;
    ptrace(PTRACE_CONT, tid, 0, signal);
    return 1;
}

static void until_stopped(struct traced *t, pid_t leader) {
    for (int n = 0; t->tid && !t->stopped; n += !take(leader)) {
        if (n > LONGEST_S * 1000) end(2, "thread %d did not stop in %d s", (int)t->tid, LONGEST_S);
        usleep(take(leader) ? 0 : 1000);
    }
}

static void go_on_for(int ms, pid_t leader) {
    for (int n = 0; n < ms && ended_as < 0; n++) {
        while (take(leader)) {
        }
        usleep(1000);
    }
}

static void stop_all(pid_t leader) {
    for (struct traced *t = all; t < all + THREADS_MAX; t++)
        if (t->tid && !t->stopped) t->asked = 1, ptrace(PTRACE_INTERRUPT, t->tid, 0, 0);
    for (struct traced *t = all; t < all + THREADS_MAX; t++)
        if (t->tid && t->asked) until_stopped(t, leader);
}

static void step(pid_t leader) {
    struct traced *t = find(*first);
    for (int n = 0; n < STEPS && t->tid; n++) {
        t->stopped = 0;
        NEED(!ptrace(PTRACE_SINGLESTEP, t->tid, 0, 0));
        until_stopped(t, leader);
    }
}

static void seize(pid_t tid) {
    NEED(!ptrace(PTRACE_SEIZE, tid, 0, (long)(PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)));
    find(tid);
}

static void seize_all(pid_t leader) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/task", (int)leader);
    DIR *tasks = opendir(path);
    NEED(tasks);
    for (struct dirent *task; (task = readdir(tasks));)
        if (atoi(task->d_name)) seize(atoi(task->d_name));
    closedir(tasks);
}

static void trace(pid_t leader) {
    if (!is("attach")) seize(leader);
    NEED(write(gate[1], "g", 1) == 1);
    for (int n = 0; !*first && n < 600; n++) go_on_for(100, leader);
    if (is("attach")) seize_all(leader);
    for (int n = 0; n < ROUNDS && ended_as < 0; n++) {
        go_on_for(50, leader);
        stop_all(leader);
        if (is("steps")) step(leader);
        for (struct traced *t = all; t < all + THREADS_MAX; t++)
            if (t->tid && t->asked) t->stopped = t->asked = 0, ptrace(PTRACE_CONT, t->tid, 0, 0);
    }
    *over = 1;
    while (ended_as < 0) go_on_for(100, leader);
}

static int alone(char **arguments) {
    pid_t pid = fork();
    NEED(pid >= 0);
    if (!pid) {
        NEED(!ptrace(PTRACE_TRACEME, 0, 0, 0) && !raise(SIGSTOP));
        // More than a process has from the beginning, and less than the limit.
        volatile char *some = mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t i = 0; i < 2 << 20; i += PAGE) some[i] = (char)i;
        _exit(0);
    }
    int status;
    NEED(waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status));
    NEED(!ptrace(PTRACE_SETOPTIONS, pid, 0, (long)(PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)));
    for (int n = 0; WIFSTOPPED(status); n++) {
        NEED(!ptrace(PTRACE_CONT, pid, 0, 0));
        pid_t told = 0;
        for (int ms = 0; !(told = waitpid(pid, &status, __WALL | WNOHANG)); ms++) {
            if (ms > LONGEST_S * 1000) end(2, "the traced one does not go on after stop %d", n);
            usleep(1000);
        }
        NEED(told == pid);
    }
    NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    arena(arguments);
    verify_all("traced");
    return done();
}

int main(int count, char **arguments) {
    begin(count, arguments);
    if (is("alone")) return alone(arguments);
    if (is("attach")) apart(arguments);
    zero = open("/dev/zero", O_RDONLY);
    char *shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(zero >= 0 && shared != MAP_FAILED && !pipe(gate));
    over = (int *)shared, first = (int *)shared + 1;
    pid_t pid = fork();
    NEED(pid >= 0);
    if (!pid) child(arguments);
    trace(pid);
    return WIFEXITED(ended_as) ? WEXITSTATUS(ended_as) : 2;
}
