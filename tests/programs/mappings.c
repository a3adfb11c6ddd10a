// Unmaps and maps in the midst of paged memory while the kernel refuses: there are vm.max_map_count mappings.
//
//   mappings MIB
//
// MIB of memory are filled; then mappings are made until no more can be had, and a page in the midst is
// unmapped, mapped over, and made the target of a move. What the kernel refuses must not change a byte. Exit code 1: a
// byte was wrong. 2: a call failed that should not, or none was refused.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, MAPPINGS_MAX = 1 << 20 };

#define NEED(condition) ((condition) ? (void)0 : need(#condition, __LINE__))
static void need(const char *what, int line) {
    fprintf(stderr, "mappings: line %d: %s: errno %d\n", line, what, errno);
    exit(2);
}

static char *anonymous(size_t bytes, int prot) {
    char *at = mmap(0, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(at != MAP_FAILED);
    return at;
}

int main(int argc, char **argv) {
    size_t pages = ((argc > 1 ? strtoul(argv[1], 0, 0) : 64) << 20) / PAGE, reserved = (size_t)MAPPINGS_MAX * PAGE;
    char *memory = anonymous(pages * PAGE, PROT_READ | PROT_WRITE), *other = anonymous(PAGE, PROT_READ | PROT_WRITE);
    // A mapping of its own to be mapped over whole: what is beside it may not be touched.
    char *whole = anonymous(3 * PAGE, PROT_NONE) + PAGE;
    NEED(!mprotect(whole, PAGE, PROT_READ | PROT_WRITE));
    *(uint64_t *)whole = 7;
    for (size_t i = 0; i < pages; i++) *(uint64_t *)(memory + i * PAGE) = ~i;
    // One page of two may be read: each is a mapping of its own.
    char *many = anonymous(reserved, PROT_NONE);
    size_t made = 0;
    while (made < MAPPINGS_MAX / 2 && !mprotect(many + 2 * made * PAGE, PAGE, PROT_READ)) made++;
    NEED(made < MAPPINGS_MAX / 2 && errno == ENOMEM);
    // That takes two mappings at once; the last one may be left.
    for (unsigned i = 0; mmap(0, PAGE, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED; i++) NEED(i < 100);
    void *over_whole = mmap(whole, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    NEED(over_whole == MAP_FAILED && errno == ENOMEM);
    void *moved_whole = mremap(other, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, whole);
    NEED(moved_whole == MAP_FAILED && errno == ENOMEM);
    char *midst = memory + pages / 4 * PAGE;
    NEED(munmap(midst, PAGE) && errno == ENOMEM);
    void *over = mmap(midst + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    NEED(over == MAP_FAILED && errno == ENOMEM);
    void *moved = mremap(other, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, midst + 4 * PAGE);
    NEED(moved == MAP_FAILED && errno == ENOMEM);
    for (size_t i = 0; i < pages; i++)
        if (*(uint64_t *)(memory + i * PAGE) != ~i) {
            fprintf(stderr, "mappings: page %zu is lost\n", i);
            return 1;
        }
    if (*(uint64_t *)whole != 7) {
        fprintf(stderr, "mappings: what was refused to be mapped over is lost\n");
        return 1;
    }
    puts("nothing is lost");
    return 0;
}
