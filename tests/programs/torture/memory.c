// Operations on private memory: by libc, and by hand-written `syscall` instructions.
#include "torture.h"

#define FIXED_PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)

void op_rw(Worker *w, Region *r) {
    size_t from = below(w, r->pages), count = 1 + below(w, 64);
    int write = below(w, 2), stride = below(w, 4) ? 1 : 1 + below(w, 37);
    for (size_t i = 0; i < count; i++) {
        size_t page = (from + i * stride) % r->pages;
        check(r, page, "rw");
        if (write) put(w, r, page);
    }
}

// Pages that were freed are as they were or zeroes until they are written; from then on they are what was written, be it the same bytes.
static void write_again(Worker *w, Region *r, size_t from, size_t count) {
    for (size_t i = from; i < from + count; i++) {
        uint64_t tag = r->tags[i] & ~MAYBE_ZERO;
        switch (below(w, 8)) {
        case 0:
        case 1: fill(at(r, i), r->tags[i] = tag); break;
        case 2: put(w, r, i); break;
        case 3: // A write that changes nothing: what it met stays.
            __atomic_fetch_or((uint64_t *)at(r, i), 0, __ATOMIC_SEQ_CST);
            check(r, i, "freed and written to");
            r->tags[i] &= ~MAYBE_ZERO;
        }
    }
}

static void forget(Worker *w, Region *r, int advice) {
    size_t from, count;
    if (r->backed) return op_rw(w, r);
    part(w, r, &from, &count);
    NEED(!madvise(at(r, from), count * PAGE, advice));
    for (size_t i = from; i < from + count; i++)
        r->tags[i] = advice == MADV_FREE && r->tags[i] ? r->tags[i] | MAYBE_ZERO : 0;
    check(r, from + below(w, count), "after madvise");
    if (advice == MADV_FREE) write_again(w, r, from, count);
}

void op_dontneed(Worker *w, Region *r) { forget(w, r, MADV_DONTNEED); }
void op_free(Worker *w, Region *r) { forget(w, r, MADV_FREE); }

void op_advise(Worker *w, Region *r) {
    // None that leaves its mark on the mapping: mremap takes one mapping at a time.
    static const int advices[] = {MADV_WILLNEED, MADV_NORMAL, 20 /* COLD */, 21 /* PAGEOUT */,
                                  22 /* POPULATE_READ */, 23 /* POPULATE_WRITE */, 25 /* COLLAPSE */};
    size_t from, count;
    part(w, r, &from, &count);
    // Not every kernel knows every advice.
    (void)madvise(at(r, from), count * PAGE, advices[below(w, sizeof advices / sizeof *advices)]);
    check(r, from, "after advice");
}

void op_remap(Worker *w, Region *r) {
    if (r->fixed) return op_rw(w, r);
    size_t pages = r->pages_max / 4 + below(w, r->pages_max / 2);
    if (below(w, 2)) {
        NEED(!munmap(r->base, r->pages * PAGE));
        r->base = map(pages);
    } else {
        // Over the old mapping; what is left of it goes.
        if (pages > r->pages) pages = r->pages;
        NEED(mmap(r->base, pages * PAGE, PROT_READ | PROT_WRITE, FIXED_PRIVATE, -1, 0) == r->base);
        if (pages < r->pages) NEED(!munmap(at(r, pages), (r->pages - pages) * PAGE));
    }
    r->pages = pages;
    zero_tags(r, 0, r->pages_max);
    check(r, below(w, pages), "new mapping");
}

void op_mremap(Worker *w, Region *r) {
    if (r->fixed) return op_rw(w, r);
    size_t pages = r->pages_max / 4 + below(w, r->pages_max * 3 / 4), kept = pages < r->pages ? pages : r->pages;
    char *moved, *place = 0;
    if (below(w, 2)) {
        moved = mremap(r->base, r->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
    } else {
        // Onto a mapping with content, which goes.
        place = map(pages);
        for (size_t i = 0; i < pages; i += 7) fill(place + i * PAGE, 77);
        moved = mremap(r->base, r->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    }
    if (moved == MAP_FAILED) {
        NEED(errno == EFAULT); // The region is several mappings: mprotect left it so.
        if (place) NEED(!munmap(place, pages * PAGE));
        return check(r, below(w, kept), "not moved");
    }
    r->base = moved, r->pages = pages;
    zero_tags(r, kept, r->pages_max - kept);
    check(r, below(w, kept), "moved");
    check(r, pages - 1, "moved, last");
    put(w, r, pages - 1);
}

// The pages go, the mapping stays: both are written, and the old one goes.
void op_dontunmap(Worker *w, Region *r) {
    if (r->fixed) return op_rw(w, r);
    char *old = r->base, *moved = mremap(old, r->pages * PAGE, r->pages * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    if (moved == MAP_FAILED) {
        NEED(errno == EFAULT || errno == EINVAL);
        not_here = 1;
        return;
    }
    r->base = moved;
    for (size_t i = 0; i < r->pages; i += 3) check_page(old + i * PAGE, 0, "left behind");
    for (size_t i = 0; i < r->pages; i += 2) fill(old + i * PAGE, 5555);
    check_region(r, "moved on");
    for (size_t i = 0; i < r->pages; i++) check_page(old + i * PAGE, i % 2 ? 0 : 5555, "left behind, written");
    NEED(!munmap(old, r->pages * PAGE));
}

void op_protect(Worker *w, Region *r) {
    static const int prots[] = {PROT_READ, PROT_NONE, PROT_READ | PROT_EXEC};
    size_t from, count;
    part(w, r, &from, &count);
    int prot = prots[below(w, 3)];
    NEED(!mprotect(at(r, from), count * PAGE, prot));
    if (prot & PROT_READ)
        for (size_t i = from; i < from + count; i += 3) check(r, i, "read-only");
    check_beside(r, from, count, "beside protected");
    NEED(!mprotect(at(r, from), count * PAGE, PROT_READ | PROT_WRITE));
    for (size_t i = from; i < from + count; i++) check(r, i, "writable again");
    put(w, r, from);
}

void op_mlock(Worker *w, Region *r) {
    size_t from = below(w, r->pages - 8);
    if (mlock(at(r, from), 8 * PAGE)) {
        NEED(errno == ENOMEM || errno == EPERM || errno == EAGAIN);
        not_here = 1;
        return;
    }
    for (size_t i = 0; i < r->pages; i++) check(r, i, "beside locked");
    for (int i = 0; i < 8; i++) check(r, from + i, "locked"), put(w, r, from + i);
    NEED(!munlock(at(r, from), 8 * PAGE));
}

// Locked and unlocked behind the pager's back, which learns of it when it tries to throw a page away.
void op_rawlock(Worker *w, Region *r) {
    size_t from = below(w, r->pages - 8);
    if (raw(SYS_mlock, (long)at(r, from), 8 * PAGE, 0, 0, 0) < 0) {
        not_here = 1;
        return;
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i += 1 + round) put(w, r, from + i);
        check_region(r, "beside locked unseen");
        if (!below(w, 8)) op_fork(w, r);
    }
    NEED(!raw(SYS_munlock, (long)at(r, from), 8 * PAGE, 0, 0, 0));
    check_region(r, "unlocked unseen");
}

// madvise(2): by libc, by its number, or by process_madvise(2) where the process may advise itself (Linux 6.13).
int advise_somehow(Worker *w, char *base, size_t bytes, int advice) {
    size_t how = below(w, 3);
    if (how == 0) return madvise(base, bytes, advice);
    if (how == 1) return (int)syscall(SYS_madvise, base, bytes, advice);
    struct iovec part = {base, bytes};
    pthread_rwlock_rdlock(&descriptors);
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    ssize_t got = self < 0 ? -1 : process_madvise(self, &part, 1, advice, 0);
    if (self >= 0) close(self);
    pthread_rwlock_unlock(&descriptors);
    return got == (ssize_t)bytes ? 0 : madvise(base, bytes, advice);
}

// MADV_GUARD_INSTALL and MADV_GUARD_REMOVE, Linux 6.13.
void op_guard(Worker *w, Region *r) {
    size_t from, count;
    if (r->backed) return op_rw(w, r);
    part(w, r, &from, &count);
    if (advise_somehow(w, at(r, from), count * PAGE, 102)) {
        NEED(errno == EINVAL);
        not_here = 1;
        return;
    }
    // The kernel reads nothing there.
    int ends[2];
    pthread_rwlock_rdlock(&descriptors);
    NEED(!pipe(ends));
    NEED(write(ends[1], at(r, from + below(w, count)), 1) < 0 && errno == EFAULT);
    close(ends[0]), close(ends[1]);
    pthread_rwlock_unlock(&descriptors);
    check_beside(r, from, count, "beside guards");
    NEED(!advise_somehow(w, at(r, from), count * PAGE, 103));
    zero_tags(r, from, count);
    for (size_t i = from; i < from + count; i++) check(r, i, "unguarded");
}

// Several parts at once; of the own process every advice since Linux 6.13.
void op_process(Worker *w, Region *r) {
    enum { PARTS = 4 };
    struct iovec parts[PARTS];
    size_t apart = r->pages / PARTS, each = 1 + below(w, apart > 8 ? 8 : apart);
    if (r->backed) return op_rw(w, r);
    pthread_rwlock_rdlock(&descriptors);
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    NEED(self >= 0);
    for (size_t i = 0; i < PARTS; i++) parts[i] = (struct iovec){at(r, i * apart), each * PAGE};
    ssize_t got = below(w, 2) ? process_madvise(self, parts, PARTS, MADV_DONTNEED, 0)
                              : raw(SYS_process_madvise, self, (long)parts, PARTS, MADV_DONTNEED, 0);
    close(self);
    pthread_rwlock_unlock(&descriptors);
    if (got < 0) {
        not_here = 1;
        return check_region(r, "not discarded");
    }
    NEED(got == (ssize_t)(PARTS * each * PAGE));
    for (size_t i = 0; i < PARTS; i++) zero_tags(r, i * apart, each);
    check_region(r, "parts discarded");
}

// --- by a `syscall` instruction ----------------------------------------------------------------

void op_rawmap(Worker *w, Region *r) {
    size_t from, count;
    if (r->fixed) return op_rw(w, r);
    part(w, r, &from, &count);
    long got = raw(SYS_mmap, (long)at(r, from), count * PAGE, PROT_READ | PROT_WRITE, FIXED_PRIVATE, -1);
    NEED(got == (long)at(r, from));
    zero_tags(r, from, count);
    check(r, from + below(w, count), "mapped over by hand");
    for (size_t i = from; i < from + count; i += 2) put(w, r, i);
    check_region(r, "mapped over by hand");
}

// Onto a mapping with content, and perhaps larger or smaller.
void op_rawmove(Worker *w, Region *r) {
    if (r->fixed) return op_rw(w, r);
    size_t pages = r->pages_max / 4 + below(w, r->pages_max * 3 / 4), kept = pages < r->pages ? pages : r->pages;
    char *place = map(pages);
    for (size_t i = 0; i < pages; i += 7) fill(place + i * PAGE, 78);
    long moved = raw(SYS_mremap, (long)r->base, r->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (long)place);
    if (moved != (long)place) {
        NEED(moved == -EFAULT); // As in op_mremap.
        NEED(!munmap(place, pages * PAGE));
        return check(r, below(w, kept), "not moved by hand");
    }
    r->base = place, r->pages = pages;
    zero_tags(r, kept, r->pages_max - kept);
    check_region(r, "moved by hand");
    put(w, r, pages - 1);
}

void op_rawdiscard(Worker *w, Region *r) {
    size_t from, count;
    if (r->backed) return op_rw(w, r);
    part(w, r, &from, &count);
    NEED(!raw(SYS_madvise, (long)at(r, from), count * PAGE, MADV_DONTNEED, 0, 0));
    zero_tags(r, from, count);
    for (size_t i = from; i < from + count; i++) check(r, i, "discarded by hand");
}

void op_rawprotect(Worker *w, Region *r) {
    size_t from, count;
    part(w, r, &from, &count);
    NEED(!raw(SYS_mprotect, (long)at(r, from), count * PAGE, below(w, 2) ? PROT_READ : PROT_NONE, 0, 0));
    check_beside(r, from, count, "beside protected by hand");
    NEED(!raw(SYS_mprotect, (long)at(r, from), count * PAGE, PROT_READ | PROT_WRITE, 0, 0));
    for (size_t i = from; i < from + count; i++) check(r, i, "writable again by hand");
    put(w, r, from);
}

void op_rawtrim(Worker *w, Region *r) {
    if (r->fixed || r->pages < r->pages_max / 3) return op_rw(w, r);
    size_t goes = 1 + below(w, r->pages / 8);
    NEED(!raw(SYS_munmap, (long)at(r, r->pages - goes), goes * PAGE, 0, 0, 0));
    r->pages -= goes;
    zero_tags(r, r->pages, goes);
    check(r, r->pages - 1, "trimmed by hand");
}
