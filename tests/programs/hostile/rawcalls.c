// Calls by a `syscall` instruction, which no hook sees, on memory that is paged: exactly what natively comes of them.
//
// munmap, map (MAP_FIXED over it), map-file, move, move-onto, grow (and shrink), grow-fork, dontunmap, madvise, mprotect, brk, new
// (memory that appears), exec.
#include "hostile.h"

enum { FROM = 4000, END = 4300, COUNT = END - FROM };
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

// Pages that moved away from the memory, with their numbers.
static char *elsewhere;
static size_t elsewhere_from, elsewhere_end;

static void verify_elsewhere(const char *what) {
    for (size_t i = elsewhere_from; i < elsewhere_end; i++)
        verify_at(elsewhere + (i - elsewhere_from) * PAGE, i, generation[i], what);
}

// Between two stretches of the memory that are there, or with something else between.
static void verify_around(const char *what) {
    verify(0, FROM, what);
    verify(END, pages, what);
    if (elsewhere) verify_elsewhere(what);
}

static void refill_hole(void) {
    long got = raw(SYS_mmap, (long)at(FROM), COUNT * PAGE, PROT_READ | PROT_WRITE, PRIVATE | MAP_FIXED, -1, 0);
    NEED(got == (long)at(FROM));
}

static void unmap(void) {
    NEED(!raw(SYS_munmap, (long)at(FROM), COUNT * PAGE, 0, 0, 0, 0));
    verify_around("unmapped");
    NEED(faults(at(FROM)) && faults(at(END - 1)));
    refill_hole();
    zeroed(FROM, END);
}

static void map_over(void) {
    refill_hole();
    zeroed(FROM, END);
    verify_all("mapped over");
    for (size_t i = FROM; i < END; i++) put(i);
}

static void map_file(void) {
    int file = memfd_create("pages", 0);
    NEED(file >= 0 && !ftruncate(file, COUNT * PAGE));
    long got = raw(SYS_mmap, (long)at(FROM), COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    NEED(got == (long)at(FROM));
    zeroed(FROM, END);
    verify_all("a file over it");
    for (size_t i = FROM; i < END; i++) put(i);
    verify_all("a file, written");
    char page[PAGE];
    NEED(pread(file, page, PAGE, 0) == PAGE && !memcmp(page, at(FROM), PAGE));
    refill_hole();
    zeroed(FROM, END);
    close(file);
}

// Moves the range to where libc put a mapping, or where the kernel will; then fills the hole anew.
static void move(long flags, char *onto) {
    long got = raw(SYS_mremap, (long)at(FROM), COUNT * PAGE, COUNT * PAGE, flags, (long)onto, 0);
    NEED(got > 0 && (!onto || got == (long)onto));
    elsewhere = (char *)got, elsewhere_from = FROM, elsewhere_end = END;
    verify_around("moved");
    static uint8_t moved[COUNT];
    memcpy(moved, generation + FROM, COUNT);
    if (flags & MREMAP_DONTUNMAP) {
        for (size_t i = FROM; i < END; i++) verify_at(at(i), i, 0, "left behind");
    } else {
        NEED(faults(at(FROM)));
        refill_hole();
    }
    // And back, over the new memory.
    for (size_t i = FROM; i < END; i++) fill_at(at(i), i, 201);
    verify_around("moved, and the hole is filled");
    got = raw(SYS_mremap, (long)elsewhere, COUNT * PAGE, COUNT * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (long)at(FROM), 0);
    NEED(got == (long)at(FROM));
    elsewhere = 0;
    memcpy(generation + FROM, moved, COUNT);
}

// What is new is touched by a child first, made right after.
static void grow_and_fork(void) {
    size_t all = 64 + COUNT;
    char *small = map(64), *place = map(all);
    for (size_t i = 0; i < 64; i++) fill_at(small + i * PAGE, i, 9);
    verify_all("before it grows");
    NEED(raw(SYS_mremap, (long)small, 64 * PAGE, all * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (long)place, 0) == (long)place);
    pid_t pid = fork();
    for (size_t i = 0; i < 64; i++) verify_at(place + i * PAGE, i, 9, "grown");
    for (size_t i = 64; i < all; i++) verify_at(place + i * PAGE, i, 0, "grown, new");
    for (size_t i = 0; i < all; i++) fill_at(place + i * PAGE, i, pid ? 10 : 11);
    for (size_t i = 0; i < all; i++) verify_at(place + i * PAGE, i, pid ? 10 : 11, "grown, written");
    if (!pid) _exit(0);
    need_right(pid);
    NEED(!raw(SYS_munmap, (long)place, all * PAGE, 0, 0, 0, 0));
}

static void grow(void) {
    char *small = map(64 + COUNT);
    NEED(!raw(SYS_munmap, (long)(small + 64 * PAGE), COUNT * PAGE, 0, 0, 0, 0));
    for (size_t i = 0; i < 64; i++) fill_at(small + i * PAGE, i, 9);
    verify_all("before it grows");
    NEED(raw(SYS_mremap, (long)small, 64 * PAGE, (64 + COUNT) * PAGE, 0, 0, 0) == (long)small);
    for (size_t i = 0; i < 64; i++) verify_at(small + i * PAGE, i, 9, "grown");
    for (size_t i = 64; i < 64 + COUNT; i++) verify_at(small + i * PAGE, i, 0, "grown, new");
    for (size_t i = 0; i < 64 + COUNT; i++) fill_at(small + i * PAGE, i, 10);
    for (int round = 0; round < 2; round++) verify_all("beside what grew");
    for (size_t i = 0; i < 64 + COUNT; i++) verify_at(small + i * PAGE, i, 10, "grown, written");
    NEED(raw(SYS_mremap, (long)small, (64 + COUNT) * PAGE, 32 * PAGE, 0, 0, 0) == (long)small);
    for (size_t i = 0; i < 32; i++) verify_at(small + i * PAGE, i, 10, "shrunk");
    NEED(faults(small + 32 * PAGE));
    NEED(!raw(SYS_munmap, (long)small, 32 * PAGE, 0, 0, 0, 0));
}

static void discard(void) {
    NEED(!raw(SYS_madvise, (long)at(FROM), COUNT * PAGE, MADV_DONTNEED, 0, 0, 0));
    zeroed(FROM, END);
}

static void protect(void) {
    NEED(!raw(SYS_mprotect, (long)at(FROM), COUNT * PAGE, PROT_READ, 0, 0, 0));
    for (int round = 0; round < 2; round++) verify_all("read-only");
    NEED(!raw(SYS_mprotect, (long)at(FROM), COUNT * PAGE, PROT_NONE, 0, 0, 0));
    NEED(faults(at(FROM)) && faults(at(END - 1)));
    verify_around("beside protected");
    NEED(!raw(SYS_mprotect, (long)at(FROM), COUNT * PAGE, PROT_READ | PROT_WRITE, 0, 0, 0));
    verify_all("writable again");
}

// The break moves up and down behind libc's back; libc itself is not asked for memory meanwhile.
static void move_break(void) {
    long start = raw(SYS_brk, 0, 0, 0, 0, 0, 0), first = (start + PAGE - 1) & -PAGE;
    for (int round = 0; round < 3; round++) {
        NEED(raw(SYS_brk, first + 512 * PAGE, 0, 0, 0, 0, 0) == first + 512 * PAGE);
        char *heap = (char *)first;
        for (size_t i = 0; i < 512; i++) verify_at(heap + i * PAGE, i, 0, "break, new");
        for (size_t i = 0; i < 512; i++) fill_at(heap + i * PAGE, i, 7);
        verify_all("beside the break");
        for (size_t i = 0; i < 512; i++) verify_at(heap + i * PAGE, i, 7, "break");
        NEED(raw(SYS_brk, first + 100 * PAGE, 0, 0, 0, 0, 0) == first + 100 * PAGE);
        NEED(raw(SYS_brk, first + 512 * PAGE, 0, 0, 0, 0, 0) == first + 512 * PAGE);
        for (size_t i = 0; i < 512; i++) verify_at(heap + i * PAGE, i, i < 100 ? 7 : 0, "break, shrunk and grown");
        NEED(raw(SYS_brk, start, 0, 0, 0, 0, 0) == start);
    }
}

// Memory that no hook saw coming: it pages, and a fork copies it.
static void appear(void) {
    enum { NEW = 32 * MIB };
    long got = raw(SYS_mmap, 0, (long)NEW * PAGE, PROT_READ | PROT_WRITE, PRIVATE, -1, 0);
    NEED(got > 0);
    char *fresh = (char *)got;
    for (size_t i = 0; i < NEW; i++) fill_at(fresh + i * PAGE, i, 8);
    for (int round = 0; round < 2; round++) {
        verify_all("beside what appeared");
        for (size_t i = 0; i < NEW; i++) verify_at(fresh + i * PAGE, i, 8, "appeared");
    }
    pid_t pid = fork();
    if (!pid) {
        for (size_t i = 0; i < NEW; i++) verify_at(fresh + i * PAGE, i, 8, "child, appeared");
        child_work();
        _exit(0);
    }
    need_right(pid);
    NEED(!raw(SYS_munmap, got, (long)NEW * PAGE, 0, 0, 0, 0));
}

static void execute(void) {
    static char *again[] = {"rawcalls", "64", "munmap", 0};
    pid_t pid = fork();
    if (!pid) {
        raw(SYS_execve, (long)"/proc/self/exe", (long)again, (long)environ, 0, 0, 0);
        _exit(9);
    }
    need_right(pid);
}

static void act(void) {
    if (is("munmap")) unmap();
    else if (is("map")) map_over();
    else if (is("map-file")) map_file();
    else if (is("move")) move(MREMAP_MAYMOVE | MREMAP_FIXED, map(COUNT));
    else if (is("move-onto")) {
        char *place = map(COUNT);
        for (size_t i = 0; i < COUNT; i++) fill_at(place + i * PAGE, i, 12);
        verify_all("before the move");
        move(MREMAP_MAYMOVE | MREMAP_FIXED, place);
    } else if (is("dontunmap")) move(MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    else if (is("grow")) grow();
    else if (is("grow-fork")) grow_and_fork();
    else if (is("madvise")) discard();
    else if (is("mprotect")) protect();
    else if (is("brk")) move_break();
    else if (is("new")) appear();
    else if (is("exec")) execute();
    else end(2, "no such variant");
}

int main(int count, char **arguments) {
    begin(count, arguments);
    arena(arguments);
    for (int round = 0; round < 3; round++) {
        act();
        verify_all("done");
        for (size_t i = FROM; i < END; i += 2) put(i);
        verify_all("written");
    }
    fork_and_verify();
    return done();
}
