// Frees as a runtime with a collector and a scavenger does (Go's, jemalloc's with muzzy pages): spans are given back by MADV_FREE when they are
// empty, and soon written again, some at once and some much later. Beside them lies data that stays.
//
//   gofrees DATA_MIB SPANS_MIB ROUNDS
//
// In each round most spans are written, read and freed in turn, and a part of the data is read. Prints a sum that depends on the arguments alone.
// Exit code 1: a wrong byte.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, SPAN = 64 * PAGE, LIVE = 24 };

static uint64_t seed = 1;
static uint64_t below(uint64_t n) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % n;
}

static char *map(size_t bytes) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) perror("mmap"), exit(2);
    return at;
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    size_t data = strtoul(arguments[1], 0, 10) << 20, spans = (strtoul(arguments[2], 0, 10) << 20) / SPAN, rounds = strtoul(arguments[3], 0, 10);
    char *kept = map(data), *heap = map(spans * SPAN);
    uint64_t sum = 0, *written = calloc(spans, sizeof *written);
    for (size_t at = 0; at < data; at += 8) *(uint64_t *)(kept + at) = at * 0x9e3779b97f4a7c15ull;
    for (size_t round = 1; round <= rounds; round++) {
        size_t live[LIVE];
        for (size_t step = 0; step < spans; step++) {
            // Where there is a hole a span goes: the lowest of a few, as allocators take them.
            size_t span = below(spans);
            for (int tries = 0; tries < 3; tries++) {
                size_t other = below(spans);
                if (other < span) span = other;
            }
            memset(heap + span * SPAN, (int)(round + span), SPAN);
            written[span] = round + span;
            live[step % LIVE] = span;
            if (step < LIVE) continue;
            // The oldest that is in use is read once more and given up.
            size_t old = live[(step + 1) % LIVE];
            for (size_t at = 0; at < SPAN && written[old]; at += 512) {
                if ((unsigned char)heap[old * SPAN + at] != (unsigned char)written[old]) printf("span %zu is wrong\n", old), exit(1);
                sum += (unsigned char)heap[old * SPAN + at];
            }
            if (written[old] && madvise(heap + old * SPAN, SPAN, MADV_FREE)) perror("madvise"), exit(2);
            written[old] = 0;
            uint64_t at = below(data / PAGE) * PAGE;
            if (*(uint64_t *)(kept + at) != at * 0x9e3779b97f4a7c15ull) printf("the data at %llu is wrong\n", (unsigned long long)at), exit(1);
        }
    }
    printf("%llu\n", (unsigned long long)sum);
}
