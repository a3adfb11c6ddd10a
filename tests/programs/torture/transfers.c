// System calls into memory that may be paged out, descriptors and signals.
#include "torture.h"

enum { GIFTS = 8 };

void op_pipe(Worker *w, Region *r) {
    enum { COUNT = 12 };
    int ends[2];
    struct iovec to[COUNT];
    size_t half = r->pages / 2, from = below(w, half - COUNT), into = half + below(w, half - COUNT);
    pthread_rwlock_rdlock(&descriptors);
    NEED(!pipe(ends));
    NEED(write(ends[1], at(r, from), COUNT * PAGE) == COUNT * PAGE);
    for (size_t i = 0; i < COUNT; i++) to[i] = (struct iovec){at(r, into + COUNT - 1 - i), PAGE};
    NEED(readv(ends[0], to, COUNT) == COUNT * PAGE);
    for (size_t i = 0; i < COUNT; i++) r->tags[into + COUNT - 1 - i] = r->tags[from + i];
    for (size_t i = 0; i < COUNT; i++) check(r, into + i, "readv");
    close(ends[0]), close(ends[1]);
    pthread_rwlock_unlock(&descriptors);
}

static void through_file(Worker *w, Region *r, int flags, const char *what) {
    enum { COUNT = 32 };
    size_t from = below(w, r->pages - COUNT);
    pthread_rwlock_rdlock(&descriptors);
    int file = open(directory, O_TMPFILE | O_RDWR | flags, 0600);
    NEED(file >= 0);
    NEED(pwrite(file, at(r, from), COUNT * PAGE, 0) == COUNT * PAGE);
    if (below(w, 2)) {
        NEED(!madvise(at(r, from), COUNT * PAGE, MADV_DONTNEED));
    } else {
        for (size_t i = 0; i < COUNT; i++) fill(at(r, from + i), 4711 + i);
        for (size_t i = 0; i < r->pages; i++)
            if (i < from || i >= from + COUNT) check(r, i, what); // Pages it out, perhaps.
    }
    NEED(pread(file, at(r, from), COUNT * PAGE, 0) == COUNT * PAGE);
    for (size_t i = 0; i < COUNT; i++) {
        int ignored;
        // What was a page that MADV_FREE may have emptied is now one or the other.
        if (r->tags[from + i] & MAYBE_ZERO && holds((void *)at(r, from + i), 0, &ignored)) r->tags[from + i] = 0;
        r->tags[from + i] &= ~MAYBE_ZERO;
        check(r, from + i, what);
    }
    close(file);
    pthread_rwlock_unlock(&descriptors);
}

void op_file(Worker *w, Region *r) { through_file(w, r, 0, "file"); }
void op_direct(Worker *w, Region *r) { through_file(w, r, O_DIRECT, "direct"); }

// A pipe may refer to the pages themselves: whoever reads sees what they were, or what the program
// wrote since, and nothing else.
void op_vmsplice(Worker *w, Region *r) {
    int ends[2];
    char *copy = malloc(PAGE * (GIFTS + 1)), *page = (char *)(((uintptr_t)copy + PAGE - 1) & -(uintptr_t)PAGE);
    size_t from = below(w, r->pages - GIFTS);
    uint64_t old[GIFTS];
    pthread_rwlock_rdlock(&descriptors);
    NEED(copy && !pipe(ends));
    for (int i = 0; i < GIFTS; i++) put(w, r, from + i), old[i] = r->tags[from + i];
    struct iovec gift = {at(r, from), GIFTS * PAGE};
    NEED(vmsplice(ends[1], &gift, 1, 0) == GIFTS * PAGE);
    int overwritten = below(w, 2);
    for (int i = 0; i < GIFTS && overwritten; i++) put(w, r, from + i);
    for (size_t i = 0; i < r->pages; i++) check(r, i, "beside vmsplice");
    for (int i = 0; i < GIFTS; i++) {
        int word;
        for (size_t got = 0; got < PAGE;) {
            ssize_t n = read(ends[0], page + got, PAGE - got);
            NEED(n > 0 || errno == EINTR);
            got += n > 0 ? n : 0;
        }
        if (!holds((void *)page, old[i], &word) && !holds((void *)page, r->tags[from + i], &word))
            end(1, "vmsplice: page %d of the pipe is neither old nor new, word %d", i, word);
    }
    close(ends[0]), close(ends[1]);
    pthread_rwlock_unlock(&descriptors);
    free(copy);
}

// Reads and writes the region by the kernel's own hand, in another process's stead.
void op_peek(Worker *w, Region *r) {
    static __thread char page[PAGE];
    for (int i = 0; i < 12; i++) {
        size_t at_page = below(w, r->pages);
        struct iovec here = {page, PAGE}, there = {at(r, at_page), PAGE};
        ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
        if (got < 0 && (errno == EPERM || errno == ENOSYS)) {
            not_here = 1;
            return;
        }
        NEED(got == PAGE);
        check_page(page, r->tags[at_page], "peeked");
        r->tags[at_page] = new_tag(w);
        fill(page, r->tags[at_page]);
        NEED(process_vm_writev(getpid(), &here, 1, &there, 1, 0) == PAGE);
        check(r, at_page, "poked");
    }
}

void op_closefrom(Worker *w, Region *r) {
    pthread_rwlock_wrlock(&descriptors);
    for (int i = 3; i < 64; i++) NEED(dup2(2, i) == i);
    closefrom(3);
    pthread_rwlock_unlock(&descriptors);
    check(r, below(w, r->pages), "after closefrom");
}

// --- signals, locks ----------------------------------------------------------------------------

static __thread Region *signalled;
static __thread Worker *signalled_worker;

void handle(int number) {
    (void)number;
    int kept = errno;
    Region *r = signalled;
    for (int i = 0; r && i < 16; i++) check(r, below(signalled_worker, r->pages), "in a handler");
    if (r) put(signalled_worker, r, below(signalled_worker, r->pages));
    errno = kept;
}

void op_signal(Worker *w, Region *r) {
    signalled_worker = w, signalled = r;
    for (int i = 0; i < 8; i++) NEED(!pthread_kill(pthread_self(), SIGUSR1));
    signalled = 0;
}

void use_other_stack(void) {
    stack_t stack = {.ss_sp = map(16), .ss_size = 16 * PAGE};
    NEED(!sigaltstack(&stack, 0));
}
