// Memory that is shared with others, beside and over memory that is paged.
//
// memfd: MAP_SHARED of a memfd. anonymous: MAP_SHARED | MAP_ANONYMOUS. private: private pages of a file. zero: private memory by /dev/zero. over: a memfd
// over managed pages by MAP_FIXED, then private memory over that. duplicate: mremap of shared memory with an old length
// of 0. remap: remap_file_pages of shared memory, and of memory that is paged (EINVAL). growsdown: MAP_GROWSDOWN.
#include "hostile.h"

enum { COUNT = 8 * MIB, FROM = 5000 };
static char *beside;
static uint8_t right;

static void fill_beside(uint8_t g) {
    right = g;
    for (size_t i = 0; i < COUNT; i++) fill_at(beside + i * PAGE, i, g);
}

static void verify_beside(const char *what) {
    for (size_t i = 0; i < COUNT; i++) verify_at(beside + i * PAGE, i, right, what);
}

static void make_beside(void) {
    int flags = MAP_SHARED, file = -1, prot = PROT_READ | PROT_WRITE;
    if (is("anonymous")) flags |= MAP_ANONYMOUS;
    else if (is("growsdown")) flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN;
    else if (is("zero")) NEED((file = open("/dev/zero", O_RDWR)) >= 0);
    else NEED((file = memfd_create("beside", 0)) >= 0 && !ftruncate(file, (off_t)COUNT * PAGE));
    if (is("private") || is("zero")) flags = MAP_PRIVATE;
    if (is("over")) flags |= MAP_FIXED;
    beside = mmap(is("over") ? at(FROM) : 0, (size_t)COUNT * PAGE, prot, flags, file, 0);
    NEED(beside != MAP_FAILED);
    if (file >= 0) close(file);
    for (size_t i = 0; i < COUNT; i++) verify_at(beside + i * PAGE, i, 0, "new");
    fill_beside(1);
}

// With `over` the memory has a hole, where something else is.
static void verify_rest(const char *what) {
    verify(0, is("over") ? FROM : pages, what);
    if (is("over")) verify(FROM + COUNT, pages, what);
}

static void fork_beside(void) {
    int shared = !is("private") && !is("zero") && !is("growsdown");
    pid_t pid = fork();
    if (!pid) {
        verify_rest("child");
        verify_beside("child, beside");
        fill_beside(33);
        verify_rest("child");
        _exit(0);
    }
    need_right(pid);
    if (shared) right = 33;
    verify_beside("parent, beside");
    verify_rest("parent");
}

int main(int count, char **arguments) {
    begin(count, arguments);
    arena(arguments);
    make_beside();
    for (int round = 0; round < 2; round++) verify_rest("memory"), verify_beside("beside");
    fork_beside();
    if (is("duplicate")) {
        char *twin = mremap(beside, 0, (size_t)COUNT * PAGE, MREMAP_MAYMOVE);
        NEED(twin != MAP_FAILED && twin != beside);
        for (size_t i = 0; i < COUNT; i++) verify_at(twin + i * PAGE, i, right, "twin");
        NEED(!munmap(twin, (size_t)COUNT * PAGE));
        // Of private memory the kernel makes no second mapping of the same pages.
        REFUSED(mremap(at(100), 0, 10 * PAGE, MREMAP_MAYMOVE), EINVAL);
    }
    if (is("remap")) {
        REFUSED(remap_file_pages(at(100), 10 * PAGE, 0, 0, 0), EINVAL);
        NEED(!remap_file_pages(beside, PAGE, 0, 5, 0));
        verify_at(beside, 5, right, "remapped");
        NEED(!remap_file_pages(beside, PAGE, 0, 0, 0));
    }
    if (is("over")) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        NEED(mmap(at(FROM), (size_t)COUNT * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == at(FROM));
        zeroed(FROM, FROM + COUNT);
        verify_all("private again");
        for (size_t i = FROM; i < FROM + COUNT; i++) put(i);
        fork_and_verify();
        return done();
    }
    verify_beside("at the end, beside");
    return done();
}
