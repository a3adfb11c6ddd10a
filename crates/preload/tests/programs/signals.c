// Handlers that map memory while hooks of their own thread, and of many others, are at work.
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

enum { THREADS = 80, ROUNDS = 400 };
static volatile int handled;

static void handler(int number) {
    (void)number;
    int before = errno;
    char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    at[5000] = 1;
    CHECK(munmap(at, 8192) == 0);
    handled++;
    errno = before;
}

static void *worker(void *argument) {
    for (int i = 0; i < ROUNDS; i++) {
        char *at = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        at[100] = 1;
        CHECK(mprotect(at, 4096, PROT_READ) == 0);
        CHECK(munmap(at, 1 << 16) == 0);
    }
    return argument;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    while (!handled)
        worker(NULL);
    return 0;
}
