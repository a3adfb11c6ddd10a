// Pages that the program gives away, by whatever call, read as zeroes; their neighbours keep their bytes.
//
// madvise, number, raw: MADV_DONTNEED. process: process_madvise of this process by libc, process-number and
// process-raw likewise. free: MADV_FREE, whose pages read as before or as zeroes, until they are written.
// guard: MADV_GUARD_INSTALL (Linux 6.13), which ends who touches it, and MADV_GUARD_REMOVE; guard-raw likewise.
// guard-fork: a child has the guards too, and removes its own. guard-process: by process_madvise.
// populate: MADV_POPULATE_WRITE over pages that are paged out. locked: MADV_DONTNEED_LOCKED of locked pages.
#include "hostile.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
enum { FROM = 3000, END = 3200, RANGES = 4, APART = 64, EACH = 10 };

static long advise(size_t from, size_t to, int advice) {
    long base = (long)at(from), len = (to - from) * PAGE;
    if (is("guard-process")) return advise_self(at(from), len, advice), 0;
    if (is("number")) return syscall(SYS_madvise, base, len, advice);
    if (!strstr(variant, "raw")) return madvise(at(from), len, advice);
    long result = raw(SYS_madvise, base, len, advice, 0, 0, 0);
    if (result < 0) errno = -result;
    return result < 0 ? -1 : result;
}

static void several(void) {
    struct iovec parts[RANGES];
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    NEED(self >= 0);
    for (size_t i = 0; i < RANGES; i++) parts[i] = (struct iovec){at(FROM + i * APART), EACH * PAGE};
    ssize_t got;
    if (is("process-raw")) got = raw(SYS_process_madvise, self, (long)parts, RANGES, MADV_DONTNEED, 0, 0);
    else if (is("process-number")) got = syscall(SYS_process_madvise, self, parts, RANGES, MADV_DONTNEED, 0);
    else got = process_madvise(self, parts, RANGES, MADV_DONTNEED, 0);
    if (got < 0 && (errno == EINVAL || got == -EINVAL)) missing("process_madvise with MADV_DONTNEED (Linux 6.13)");
    NEED(got == RANGES * EACH * PAGE);
    for (size_t i = 0; i < RANGES; i++) zeroed(FROM + i * APART, FROM + i * APART + EACH);
}

static void freed(void) {
    NEED(!advise(FROM, END, MADV_FREE));
    verify(0, FROM, "beside");
    verify(END, pages, "beside");
    for (size_t i = FROM; i < END; i++) {
        uint64_t first = *(volatile uint64_t *)at(i);
        if (!first) zeroed(i, i + 1);
        verify_at(at(i), i, generation[i], "freed");
        put(i);
    }
}

static void guarded(void) {
    if (advise(FROM, END, MADV_GUARD_INSTALL)) missing("MADV_GUARD_INSTALL (Linux 6.13)");
    for (size_t i = FROM; i < END; i += 7) NEED(faults(at(i)));
    verify(0, FROM, "beside");
    verify(END, pages, "beside");
    for (size_t i = FROM; i < END; i += 7) NEED(faults(at(i)));
    if (is("guard-fork")) {
        pid_t pid = fork();
        if (!pid) {
            for (size_t i = FROM; i < END; i += 7) NEED(faults(at(i)));
            NEED(!advise(FROM, END, MADV_GUARD_REMOVE));
            zeroed(FROM, END);
            child_work();
            _exit(0);
        }
        need_right(pid);
        for (size_t i = FROM; i < END; i += 7) NEED(faults(at(i)));
    }
    NEED(!advise(FROM, END, MADV_GUARD_REMOVE));
    zeroed(FROM, END);
    verify_all("unguarded");
}

static void populated(void) {
    if (advise(FROM, END, 23 /* MADV_POPULATE_WRITE, Linux 5.14 */)) missing("MADV_POPULATE_WRITE");
    verify_all("populated");
    NEED(!advise(FROM, END, MADV_DONTNEED));
    NEED(!advise(FROM, END, 23));
    zeroed(FROM, END);
    NEED(!mprotect(at(FROM), PAGE, PROT_READ));
    REFUSED(advise(FROM, END, 23), EINVAL);
    NEED(!advise(FROM, END, 22 /* MADV_POPULATE_READ */));
    NEED(!mprotect(at(FROM), PAGE, PROT_NONE));
    REFUSED(advise(FROM, END, 22), EINVAL);
    NEED(!mprotect(at(FROM), PAGE, PROT_READ | PROT_WRITE));
    // Linux 6.13.
    if (advise(FROM, FROM + 1, MADV_GUARD_INSTALL)) return;
    REFUSED(advise(FROM, END, 22), EFAULT);
    REFUSED(advise(FROM, END, 23), EFAULT);
    NEED(!mprotect(at(FROM), PAGE, PROT_NONE));
    REFUSED(advise(FROM, END, 22), EINVAL);
    NEED(!mprotect(at(FROM), PAGE, PROT_READ | PROT_WRITE));
    NEED(!advise(FROM, FROM + 1, MADV_GUARD_REMOVE));
    zeroed(FROM, END);
}

static void unlocked(void) {
    if (mlock(at(FROM), (END - FROM) * PAGE)) missing("mlock");
    verify_all("locked");
    REFUSED(advise(FROM, END, MADV_DONTNEED), EINVAL);
    verify_all("refused");
    NEED(!advise(FROM, END, MADV_DONTNEED_LOCKED));
    zeroed(FROM, END);
    verify_all("discarded while locked");
    NEED(!munlock(at(FROM), (END - FROM) * PAGE));
}

int main(int count, char **arguments) {
    begin(count, arguments);
    arena(arguments);
    for (int round = 0; round < 3; round++) {
        if (!strncmp(variant, "process", 7)) several();
        else if (is("free")) freed();
        else if (!strncmp(variant, "guard", 5)) guarded();
        else if (is("populate")) populated();
        else if (is("locked")) unlocked();
        else {
            NEED(!advise(FROM, END, MADV_DONTNEED));
            zeroed(FROM, END);
        }
        verify_all("discarded");
        for (size_t i = FROM; i < END; i += 3) put(i);
        verify_all("written again");
    }
    fork_and_verify();
    return done();
}
