// A collector's write barrier: a block that was written loses the right to be written, or every right, until somebody writes there.
//
//     barrier MIB
//
// The heap grows by blocks of 1 MiB. Whoever writes to a page again is interrupted, and gets that page back, as a collector notes
// what changed. Prints a line and ends with 0 if every page holds what was written last, to the byte.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, BLOCK = 1 << 20, PAGES = BLOCK / PAGE, WORDS = PAGE / 8 };

static void give_back(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0)
        _exit(3);
}

static uint64_t word(uint64_t page, uint64_t round, int i) {
    return (page + 1) * 0x9e3779b97f4a7c15u ^ (round << 40) ^ (uint64_t)i * 0xff51afd7ed558ccdu;
}

static void write_page(uint64_t *page, uint64_t number, uint64_t round) {
    for (int i = 0; i < WORDS; i++)
        page[i] = word(number, round, i);
}

static int is_right(const uint64_t *page, uint64_t number, uint64_t round) {
    for (int i = 0; i < WORDS; i++)
        if (page[i] != word(number, round, i))
            return 0;
    return 1;
}

int main(int count, char **arguments) {
    int blocks = count > 1 ? atoi(arguments[1]) : 64;
    struct sigaction action = {.sa_sigaction = give_back, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    uint64_t **heap = calloc(blocks, sizeof *heap);
    unsigned char *rounds = calloc((size_t)blocks * PAGES, 1);
    for (int b = 0; b < blocks; b++) {
        heap[b] = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (heap[b] == MAP_FAILED)
            return 2;
        for (int p = 0; p < PAGES; p++)
            write_page(heap[b] + p * WORDS, (uint64_t)b * PAGES + p, 0);
        if (mprotect(heap[b], BLOCK, b % 4 == 3 ? PROT_NONE : PROT_READ) != 0)
            return 2;
        // Some of what is there is written again, and protected once more.
        int old = b * 7 % (b + 1), page = b * 31 % PAGES;
        uint64_t number = (uint64_t)old * PAGES + page;
        write_page(heap[old] + page * WORDS, number, ++rounds[number]);
        mprotect(heap[old] + page * WORDS, PAGE, PROT_READ);
    }
    for (int b = 0; b < blocks; b++)
        for (int p = 0; p < PAGES; p++) {
            uint64_t number = (uint64_t)b * PAGES + p;
            if (!is_right(heap[b] + p * WORDS, number, rounds[number])) {
                printf("page %d of block %d is wrong\n", p, b);
                return 1;
            }
        }
    printf("%d blocks are right\n", blocks);
    return 0;
}
