// Threads that touch pages in no order, and compute after each touch.
//
//   turns THREADS MIB MICROSECONDS SECONDS
//
// Prints the touches of all threads a second. A third of each page's words are small numbers and two thirds follow its number, so that it compresses.
// Exit code 1: a page was not what was written. 64: wrong arguments.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, MARK = 1, COUNT = 2, FACTOR = 31, THREADS_MAX = 64 };
static char *memory;
static size_t pages;
static double compute;
static int over;
static long touches[THREADS_MAX];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void *toucher(void *number) {
    uint64_t state = 7919 * ((uintptr_t)number + 1);
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        size_t page = next(&state) % pages;
        volatile uint64_t *words = (uint64_t *)(memory + page * PAGE);
        if (words[MARK] != page * FACTOR) fprintf(stderr, "turns: page %zu is wrong\n", page), exit(1);
        words[COUNT]++;
        touches[(uintptr_t)number]++;
        if (compute > 0)
            for (double end = now() + compute; now() < end;) continue;
    }
    return 0;
}

int main(int argc, char **argv) {
    size_t threads = argc == 5 ? strtoul(argv[1], 0, 0) : 0, mib = argc == 5 ? strtoul(argv[2], 0, 0) : 0;
    if (!threads || threads > THREADS_MAX || !mib) return fputs("turns THREADS MIB MICROSECONDS SECONDS\n", stderr), 64;
    compute = atof(argv[3]);
    pages = (mib << 20) / PAGE;
    memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return perror("turns"), 1;
    uint64_t state = 88172645463325252ull;
    for (size_t page = 0; page < pages; page++) {
        uint64_t *words = (uint64_t *)(memory + page * PAGE);
        for (size_t i = 0; i < WORDS; i++) words[i] = i % 3 ? page * i : next(&state) & 0xffff;
        words[MARK] = page * FACTOR;
    }
    pthread_t all[THREADS_MAX];
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&all[i], 0, toucher, (void *)i)) return fputs("turns: no thread\n", stderr), 1;
    double seconds = atof(argv[4]);
    usleep(seconds * 1e6);
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    long sum = 0;
    for (size_t i = 0; i < threads; i++) pthread_join(all[i], 0), sum += touches[i];
    printf("%.0f touches a second\n", sum / seconds);
    return 0;
}
