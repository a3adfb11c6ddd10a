// Locks, protection keys and descriptors.
//
// mlock, mlock-raw: 4 MiB locked while paging. asleep: 6 MiB locked, and a child has the rest of the limit while the parent sleeps. mlockall: refused or done.
// future, future-raw: what is mapped was locked at once until more was needed. future-held, future-held-raw: and still is. future-pieces, future-pieces-raw: and is mapped
// in many pieces. all-raw: everything is locked while paging, unseen. pkey: pkey_mprotect with a key.
// close-range, close-range-raw: every descriptor from 3 on is closed, then a fork. unshare: CLOSE_RANGE_UNSHARE.
// files: unshare(CLONE_FILES) and all closed.
#include "hostile.h"
#include <linux/close_range.h>
#include <sys/prctl.h>

enum { FROM = 6000, COUNT = 4 * MIB };

static void lock(void) {
    long base = (long)at(FROM), len = COUNT * PAGE;
    int unseen = is("mlock-raw");
    if (unseen ? raw(SYS_mlock, base, len, 0, 0, 0, 0) : mlock(at(FROM), len)) missing("mlock");
    for (int round = 0; round < 2; round++) verify_all("locked");
    static unsigned char there[COUNT];
    NEED(!mincore(at(FROM), len, there));
    for (size_t i = 0; i < COUNT; i++) NEED(there[i] & 1);
    for (size_t i = FROM; i < FROM + COUNT; i++) put(i);
    // Locks are not inherited.
    fork_and_verify();
    NEED(!(unseen ? raw(SYS_munlock, base, len, 0, 0, 0, 0) : munlock(at(FROM), len)));
}

// The child takes what its parent has beside what is locked, and keeps it until the parent has to take it back.
static void sleep_while_a_child_works(void) {
    enum { SECONDS = 3, LOCKED = 6 * MIB };
    int ends[2];
    NEED(!pipe(ends));
    if (mlock(at(FROM), LOCKED * PAGE)) missing("mlock");
    pid_t pid = fork();
    if (!pid) {
        NEED(!prctl(PR_SET_PDEATHSIG, SIGKILL));
        for (time_t until = time(0) + SECONDS; time(0) < until;) verify_all("child");
        NEED(write(ends[1], "", 1) == 1);
        pause();
    }
    char byte;
    NEED(read(ends[0], &byte, 1) == 1);
    verify_all("awake again");
    NEED(!kill(pid, SIGKILL) && waitpid(pid, 0, 0) == pid);
    NEED(!close(ends[0]) && !close(ends[1]) && !munlock(at(FROM), LOCKED * PAGE));
}

static void lock_future(void) {
    size_t length = strlen(variant);
    int unseen = !strcmp(variant + length - 4, "-raw");
    if (unseen ? raw(SYS_mlockall, MCL_CURRENT | MCL_FUTURE, 0, 0, 0, 0, 0) : mlockall(MCL_CURRENT | MCL_FUTURE)) missing("mlockall");
    char *locked = map(MIB);
    for (size_t i = 0; i < MIB; i++) fill_at(locked + i * PAGE, i, 3);
    if (!strncmp(variant, "future-held", 11)) return;
    // Twice the limit.
    for (size_t n = 0; !strncmp(variant, "future-pieces", 13) && n < 64; n++) {
        char *piece = map(MIB);
        for (size_t i = 0; i < MIB; i++) fill_at(piece + i * PAGE, i, 5);
    }
    NEED(!(unseen ? raw(SYS_munlockall, 0, 0, 0, 0, 0, 0) : munlockall()));
}

static void use_key(void) {
    int key = pkey_alloc(0, 0);
    if (key < 0) missing("pkey_alloc");
    NEED(!pkey_mprotect(at(FROM), COUNT * PAGE, PROT_READ | PROT_WRITE, key));
    for (int round = 0; round < 2; round++) verify_all("keyed");
    NEED(!pkey_set(key, PKEY_DISABLE_ACCESS));
    NEED(faults(at(FROM)));
    verify(0, FROM, "beside");
    NEED(!pkey_set(key, 0));
    verify_all("keyed");
    fork_and_verify();
    NEED(!pkey_mprotect(at(FROM), COUNT * PAGE, PROT_READ | PROT_WRITE, 0));
    NEED(!pkey_free(key));
}

static void close_all(void) {
    if (is("files")) NEED(!unshare(CLONE_FILES));
    if (is("close-range-raw")) NEED(!raw(SYS_close_range, 3, ~0u, 0, 0, 0, 0));
    else NEED(!close_range(3, ~0u, is("unshare") ? CLOSE_RANGE_UNSHARE : 0));
    for (int i = 3; i < 64; i++) NEED(dup2(2, i) == i);
    verify_all("closed");
    fork_and_verify();
    NEED(!close_range(3, ~0u, 0));
}

int main(int count, char **arguments) {
    begin(count, arguments);
    if (!strncmp(variant, "future", 6)) lock_future();
    // No other memory: a large mapping would be noticed, whatever became of the pieces.
    if (!strncmp(variant, "future-pieces", 13)) return done();
    arena(arguments);
    if (!strncmp(variant, "mlock", 5) && !is("mlockall")) lock();
    else if (is("asleep")) sleep_while_a_child_works();
    else if (is("mlockall")) {
        // More than may be locked; what is refused costs nothing.
        if (!mlockall(MCL_CURRENT)) NEED(!munlockall());
    } else if (is("all-raw")) {
        // What is locked need not leave, so it may be the end; no byte may be wrong.
        if (raw(SYS_mlockall, MCL_CURRENT, 0, 0, 0, 0, 0)) missing("mlockall");
        verify_all("all locked");
        NEED(!raw(SYS_munlockall, 0, 0, 0, 0, 0, 0));
    } else if (is("pkey")) use_key();
    else if (strncmp(variant, "future", 6)) close_all();
    for (size_t i = 0; i < pages; i += 7) put(i);
    verify_all("later");
    fork_and_verify();
    return done();
}
