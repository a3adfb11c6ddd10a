// Neighbouring mappings. Memory that is moved away from its neighbour and back again must leave the
// neighbour as it was, paged out or not; and a page beside another mapping is served like any other.
#include "check.h"

#include <stdint.h>

enum { PAGE = 4096, PAGES = 1000, HALF = PAGES / 2, OTHER = 8192 };

static char *map(size_t pages) {
    char *base = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    return base;
}

static void fill(char *base, size_t pages, uint64_t tag) {
    for (size_t i = 0; i < pages; i++) *(uint64_t *)(base + i * PAGE) = tag + i;
}

static void verify(const char *base, size_t pages, uint64_t tag) {
    for (size_t i = 0; i < pages; i++) CHECK(*(const uint64_t *)(base + i * PAGE) == tag + i);
}

// The kernel keeps the halves apart, because one is left out of core dumps.
static void fill_across_mappings(void) {
    char *both = map(PAGES);
    CHECK(!madvise(both + HALF * PAGE, HALF * PAGE, MADV_DONTDUMP));
    for (int shift = -3; shift < 3; shift++) {
        CHECK(!madvise(both, PAGES * PAGE, MADV_DONTNEED));
        both[(HALF + shift) * PAGE] = 1;
        for (int i = 0; i < PAGES; i++) CHECK(both[i * PAGE] == (i == HALF + shift));
    }
}

// Each time the memory moves, as another mapping follows it, and its tail is new: one mapping to the kernel.
static void grow_by_moving(char *other) {
    size_t pages = 100;
    char *base = map(pages);
    fill(base, pages, 4000000);
    for (int round = 0; round < 3; round++, pages *= 2) {
        fill(other, OTHER, 2000000);
        char *next = mmap(base + pages * PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(next != MAP_FAILED || errno == EEXIST);
        char *grown = mremap(base, pages * PAGE, 2 * pages * PAGE, MREMAP_MAYMOVE);
        CHECK(grown != MAP_FAILED && grown != base);
        base = grown;
        verify(base, pages, 4000000);
        fill(base + pages * PAGE, pages, 4000000 + pages);
    }
    fill(other, OTHER, 2000000);
    verify(base, pages, 4000000);
    CHECK(!munmap(base, pages * PAGE));
}

// Two mappings that become one when the protection of the lower one is lifted.
static void move_what_was_joined(char *other) {
    char *both = map(PAGES), *away = map(PAGES);
    CHECK(mmap(both, HALF * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == both);
    fill(both + HALF * PAGE, HALF, 5000000 + HALF);
    CHECK(!mprotect(both, HALF * PAGE, PROT_READ | PROT_WRITE));
    fill(both, HALF, 5000000);
    fill(other, OTHER, 2000000);
    CHECK(mremap(both, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
    verify(away, PAGES, 5000000);
    fill(other, OTHER, 2000000);
    verify(away, PAGES, 5000000);
    CHECK(!munmap(away, PAGES * PAGE));
}

int main(void) {
    alarm(120);
    char *other = map(OTHER), *away = map(HALF), *both = map(PAGES);
    fill(both, PAGES, 1000000);
    fill(other, OTHER, 2000000);
    fill_across_mappings();
    grow_by_moving(other);
    move_what_was_joined(other);
    for (int round = 0; round < 4; round++) {
        // Pages both halves out.
        fill(other, OTHER, 2000000);
        char *half = both + (round % 2) * HALF * PAGE;
        CHECK(mremap(half, HALF * PAGE, HALF * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
        fill(other, OTHER, 3000000);
        CHECK(mremap(away, HALF * PAGE, HALF * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, half) == half);
        verify(both, PAGES, 1000000);
        verify(other, OTHER, 3000000);
    }
    return 0;
}
