// Memory that a child finds wiped: zeroes there, intact here, through everything that moves it.
//
// plain: MADV_WIPEONFORK of a range, then fork. resize: shrunk and grown in place before that. moved: moved by mremap.
// dontunmap: moved with MREMAP_DONTUNMAP, so that there are two. keep: undone by MADV_KEEPONFORK. split: a hole in its
// midst. again: a child that forks. early: before paging began. process: by process_madvise. raw: the fork by a `syscall`
// instruction.
#include "hostile.h"

enum { COUNT = 2000 };
static char *wiped;
static uint8_t right; // generation of its pages, 0 for zeroes
static size_t first, last;

static void fill_wiped(uint8_t g) {
    right = g;
    for (size_t i = first; i < last; i++) fill_at(wiped + i * PAGE, i, g);
}

static void verify_wiped(uint8_t g, const char *what) {
    for (size_t i = first; i < last; i++) verify_at(wiped + i * PAGE, i, g, what);
}

static void resize(void) {
    char *base = mremap(wiped, COUNT * PAGE, COUNT / 2 * PAGE, 0);
    NEED(base == wiped);
    last = COUNT / 2;
    verify_wiped(right, "shrunk");
    verify_all("beside");
    NEED(mremap(wiped, COUNT / 2 * PAGE, COUNT * PAGE, 0) == wiped);
    last = COUNT;
    for (size_t i = COUNT / 2; i < COUNT; i++) verify_at(wiped + i * PAGE, i, 0, "grown");
    fill_wiped(right + 1);
}

static void change(void) {
    if (is("resize")) resize();
    if (is("moved")) {
        char *place = map(COUNT);
        wiped = mremap(wiped, COUNT * PAGE, COUNT * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
        NEED(wiped == place);
    }
    if (is("dontunmap")) {
        char *old = wiped;
        wiped = mremap(old, COUNT * PAGE, COUNT * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
        NEED(wiped != MAP_FAILED && wiped != old);
        for (size_t i = 0; i < COUNT; i++) verify_at(old + i * PAGE, i, 0, "left behind");
        for (size_t i = 0; i < COUNT; i++) fill_at(old + i * PAGE, i, 77);
        verify_wiped(right, "moved on");
        verify_all("beside");
        for (size_t i = 0; i < COUNT; i++) verify_at(old + i * PAGE, i, 77, "left behind, written");
    }
    if (is("split")) {
        NEED(!munmap(wiped + COUNT / 4 * PAGE, COUNT / 4 * PAGE));
        first = COUNT / 2;
    }
    if (is("keep")) NEED(!madvise(wiped, COUNT * PAGE, MADV_KEEPONFORK));
}

static void in_child(void) {
    uint8_t kept = is("keep") ? right : 0;
    verify_wiped(kept, "child");
    verify_all("child, beside");
    fill_wiped(99);
    for (size_t i = 0; i < pages; i += 3) put(i);
    verify_all("child, written");
    verify_wiped(99, "child, written");
    if (is("again")) {
        pid_t pid = fork();
        if (!pid) {
            verify_wiped(0, "grandchild");
            verify_all("grandchild");
            _exit(0);
        }
        need_right(pid);
        verify_wiped(99, "child again");
    }
}

int main(int count, char **arguments) {
    begin(count, arguments);
    last = COUNT;
    // Room behind it, so that it grows in place: neither is a neighbour of the other once advised.
    char *room = map(COUNT + 64);
    NEED(!munmap(room + COUNT * PAGE, 64 * PAGE));
    wiped = room;
    if (is("early")) NEED(!madvise(wiped, COUNT * PAGE, MADV_WIPEONFORK));
    fill_wiped(3);
    arena(arguments);
    if (is("process")) advise_self(wiped, COUNT * PAGE, MADV_WIPEONFORK);
    else if (!is("early")) NEED(!madvise(wiped, COUNT * PAGE, MADV_WIPEONFORK));
    verify_wiped(right, "advised");
    change();
    verify_all("changed");
    for (int round = 0; round < 2; round++) {
        pid_t pid = is("raw") ? raw(SYS_fork, 0, 0, 0, 0, 0, 0) : fork();
        if (!pid) {
            in_child();
            _exit(0);
        }
        NEED(pid > 0);
        for (size_t i = 0; i < pages; i += 5) put(i);
        int status = await(pid);
        if (is("raw") && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) printf("promised: the child has no managed memory\n");
        else if (status) end(status == 0x100 ? 1 : 2, "the child ended with status %x", status);
        verify_wiped(right, "parent");
        verify_all("parent");
        fill_wiped(right + 1);
    }
    return done();
}
