// Sealed memory (Linux 6.10): what natively fails with EPERM does so, and costs no byte.
//
// writable: sealed while paged. readonly: sealed without write permission, so that nobody may discard it,
// the pager included. early: before paging began. raw: every call by a `syscall` instruction.
#include "hostile.h"

#ifndef SYS_mseal
#define SYS_mseal 462
#endif
enum { FROM = 2000, END = 2100 };

static long call(long number, long a, long b, long c, long d, long e) {
    if (!is("raw")) return syscall(number, a, b, c, d, e, 0);
    long result = raw(number, a, b, c, d, e, 0);
    if (result >= -4095 && result < 0) errno = -result, result = -1;
    return result;
}

static void seal(void) {
    if (is("readonly")) NEED(!mprotect(at(FROM), (END - FROM) * PAGE, PROT_READ));
    if (call(SYS_mseal, (long)at(FROM), (END - FROM) * PAGE, 0, 0, 0)) missing("mseal");
}

static void refused(void) {
    long at_sealed = (long)at(FROM), len = (END - FROM) * PAGE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    REFUSED(call(SYS_munmap, at_sealed, len, 0, 0, 0), EPERM);
    REFUSED(call(SYS_munmap, at_sealed - 50 * PAGE, len, 0, 0, 0), EPERM);
    if (is("raw")) {
        long got = raw(SYS_mmap, at_sealed, len, PROT_READ, flags, -1, 0);
        NEED(got == -EPERM);
    } else {
        REFUSED(mmap(at(FROM), len, PROT_READ, flags, -1, 0), EPERM);
    }
    REFUSED(call(SYS_mremap, at_sealed, len, len + 100 * PAGE, MREMAP_MAYMOVE, 0), EPERM);
    REFUSED(call(SYS_mremap, at_sealed, len, len / 2, 0, 0), EPERM);
    REFUSED(call(SYS_mremap, (long)at(100), len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at_sealed), EPERM);
    REFUSED(call(SYS_mprotect, at_sealed, len, PROT_READ | PROT_EXEC, 0, 0), EPERM);
    if (is("readonly")) {
        REFUSED(call(SYS_madvise, at_sealed, len, MADV_DONTNEED, 0, 0), EPERM);
        REFUSED(call(SYS_madvise, at_sealed, len, MADV_FREE, 0, 0), EPERM);
    }
}

int main(int count, char **arguments) {
    begin(count, arguments);
    if (is("early")) {
        pages = strtoul(arguments[1], 0, 10) * MIB;
        memory = map(pages);
        for (size_t i = FROM; i < END; i++) put(i);
        seal();
        for (size_t i = 0; i < pages; i++) put(i);
    } else {
        arena(arguments);
        seal();
    }
    verify_all("sealed");
    refused();
    verify_all("refused");
    if (!is("readonly")) {
        // Of writable memory the contents may go, sealed or not.
        NEED(!call(SYS_madvise, (long)at(FROM), 10 * PAGE, MADV_DONTNEED, 0, 0));
        zeroed(FROM, FROM + 10);
    }
    verify_all("discarded");
    pid_t pid = fork();
    if (!pid) {
        verify_all("child");
        refused();
        verify_all("child, refused");
        _exit(0);
    }
    need_right(pid);
    for (int round = 0; round < 3; round++) verify_all("parent");
    return done();
}
