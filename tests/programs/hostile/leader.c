// The first thread ends before the others, which go on paging and fork.
//
// early: before paging began. while: after. From then on /proc/self/maps is empty: the first thread has no memory.
// apart: as while, with the pager in a process of its own, and the last thread ends by itself, too.
#include "hostile.h"

enum { THREADS = 3 };
static pthread_barrier_t both;
static char **saved;

static void await_leader(void) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)getpid());
    for (;;) {
        int file = open(path, O_RDONLY);
        NEED(file >= 0);
        ssize_t length = read(file, line, sizeof line - 1);
        NEED(length > 0);
        line[length] = 0;
        close(file);
        if (strstr(line, ") Z ")) return;
        sched_yield();
    }
}

static void *work(void *argument) {
    long number = (long)argument;
    await_leader();
    if (number == 0 && is("early")) arena(saved);
    pthread_barrier_wait(&both);
    for (int round = 0; round < 2; round++) verify_all("thread");
    pthread_barrier_wait(&both);
    if (number) return 0;
    fork_and_verify();
    // New memory, and old memory that goes.
    char *fresh = map(16 * MIB);
    for (size_t i = 0; i < 16 * MIB; i++) fill_at(fresh + i * PAGE, i, 5);
    NEED(!munmap(at(100), 100 * PAGE));
    NEED(mmap(at(100), 100 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at(100));
    zeroed(100, 200);
    fork_and_verify();
    for (size_t i = 0; i < 16 * MIB; i++) verify_at(fresh + i * PAGE, i, 5, "fresh");
    done();
    if (is("apart")) raw(SYS_exit, 0, 0, 0, 0, 0, 0);
    exit(0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    if (is("apart")) apart(arguments);
    saved = arguments;
    pthread_t threads[THREADS];
    if (!is("early")) arena(arguments);
    NEED(!pthread_barrier_init(&both, 0, THREADS));
    for (long i = 0; i < THREADS; i++) NEED(!pthread_create(&threads[i], 0, work, (void *)i));
    pthread_exit(0);
}
