// Memory by every road that libc has: large blocks, the heap, thread stacks and arenas.
#include "check.h"
#include <pthread.h>

enum { LARGE = 20, SMALL = 3000, THREADS = 100 };

static void *worker(void *argument) {
    char *blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = malloc(3000 + 100 * i);
        memset(blocks[i], i, 3000);
    }
    for (int i = 0; i < 64; i++) {
        CHECK(blocks[i][2999] == i);
        free(blocks[i]);
    }
    char *large = malloc(1 << 20);
    large[12345] = 7;
    free(large);
    return argument;
}

int main(void) {
    char *large[LARGE], *small[SMALL];
    for (int i = 0; i < LARGE; i++)
        memset(large[i] = malloc(1 << 20), i, 1 << 20);
    for (int i = 0; i < SMALL; i++)
        memset(small[i] = malloc(1000), i, 1000);
    char *grown = malloc(1 << 20);
    strcpy(grown, "moved along");
    for (int mib = 2; mib <= 64; mib *= 2)
        CHECK((grown = realloc(grown, (size_t)mib << 20)) != NULL);
    CHECK(strcmp(grown, "moved along") == 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < LARGE; i++) {
        CHECK(large[i][(1 << 20) - 1] == (char)i);
        if (i % 2)
            free(large[i]);
    }
    for (int i = 0; i < SMALL; i++)
        CHECK(small[i][999] == (char)i);
    return 0;
}
