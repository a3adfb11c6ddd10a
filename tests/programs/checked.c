// For AddressSanitizer: many blocks of memory, in all sizes, filled, checked, exchanged and freed.
//
//   checked MIB [after-free | overflow]
//
// after-free, overflow: ends with that error, which the sanitizer has to find. Exit code 3: a wrong byte.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
    size_t bytes;
    unsigned char *memory;
};

static uint64_t state = 1;

static uint64_t next(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static void make(struct block *b) {
    b->bytes = 16 + next() % (next() % 64 ? 2000 : 200000);
    b->memory = malloc(b->bytes);
    if (!b->memory) exit(2);
    memset(b->memory, (int)(b->bytes & 255), b->bytes);
}

static uint64_t check(const struct block *b) {
    uint64_t sum = 0;
    for (size_t i = 0; i < b->bytes; i++) {
        if (b->memory[i] != (b->bytes & 255)) exit(3);
        sum += b->memory[i] * (i + 1);
    }
    return sum;
}

int main(int argc, char **argv) {
    size_t want = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64) << 20, have = 0, count = 0;
    struct block *blocks = calloc(want / 16, sizeof *blocks);
    uint64_t sum = 0;
    while (have < want) make(&blocks[count]), have += blocks[count++].bytes;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < count; i++) {
            struct block *b = &blocks[next() % count];
            sum = sum * 31 + check(b);
            free(b->memory);
            make(b);
        }
    for (size_t i = 0; i < count; i++) sum = sum * 31 + check(&blocks[i]);
    printf("%zu blocks, %llu\n", count, (unsigned long long)sum);
    fflush(stdout);
    if (argc > 2 && !strcmp(argv[2], "overflow")) blocks[7].memory[blocks[7].bytes]++;
    for (size_t i = 0; i < count; i++) free(blocks[i].memory);
    if (argc > 2 && !strcmp(argv[2], "after-free")) blocks[7].memory[3]++;
    free(blocks);
    return 0;
}
