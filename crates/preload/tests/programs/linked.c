// A library whose constructor starts a thread, as OpenBLAS's does (compiled with -DLIBRARY), and a program that is linked with it
// and uses four times the little limit.
#include "check.h"
#include <pthread.h>

#ifdef LIBRARY
static void *wait_for_ever(void *none) {
    for (;;) pause();
}

__attribute__((constructor)) static void start(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, 0, wait_for_ever, 0));
}

int seven(void) { return 7; }
#else
int seven(void);

enum { BYTES = 32 << 20, PAGE = 4096 };

static long resident_kib(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "RssAnon: %ld", &kib);
    fclose(status);
    return kib;
}

int main(void) {
    unsigned char *bytes = malloc(BYTES);
    CHECK(bytes);
    for (size_t i = 0; i < BYTES; i++) bytes[i] = i / PAGE % 251 + i % 3;
    CHECK(resident_kib() < BYTES / 2 / 1024);
    for (size_t i = 0; i < BYTES; i++) CHECK(bytes[i] == i / PAGE % 251 + i % 3);
    return seven() == 7 ? 0 : 1;
}
#endif
