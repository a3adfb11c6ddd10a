// 16 MiB that a child shall not have, in the midst of memory that is paged.
//
// while: MADV_DONTFORK while paging, then fork. dofork: undone by MADV_DOFORK. early: before paging began.
// half: of the 16 MiB one half is given back. number: by libc's syscall. process: by process_madvise. again: a child that forks.
#include "hostile.h"

enum { FROM = 8 * MIB, END = 24 * MIB };

static void advise(size_t from, size_t to, int advice) {
    if (is("number")) NEED(!syscall(SYS_madvise, at(from), (to - from) * PAGE, advice));
    else if (is("process")) advise_self(at(from), (to - from) * PAGE, advice);
    else NEED(!madvise(at(from), (to - from) * PAGE, advice));
}

// The memory of `from` up to `to` is missing here; all else is right.
static void verify_child(size_t from, size_t to, const char *what) {
    verify(0, from, what);
    verify(to, pages, what);
    for (size_t i = from; i < to; i += 61)
        if (!faults(at(i))) end(1, "%s: page %zu is there", what, i);
    for (size_t i = 0; i < from; i += 3) put(i);
    for (size_t i = to; i < pages; i += 3) put(i);
    verify(0, from, what);
    verify(to, pages, what);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    size_t from = FROM, to = END;
    if (is("early")) {
        pages = strtoul(arguments[1], 0, 10) * MIB;
        memory = map(pages);
        advise(from, to, MADV_DONTFORK);
        for (size_t i = 0; i < pages; i++) put(i);
    } else {
        arena(arguments);
        advise(from, to, MADV_DONTFORK);
    }
    for (size_t i = from; i < to; i += 2) put(i);
    verify_all("advised");
    if (is("dofork")) advise(from, to, MADV_DOFORK), to = from;
    if (is("half")) advise(from, from + 8 * MIB, MADV_DOFORK), from += 8 * MIB;
    pid_t pid = fork();
    if (!pid) {
        verify_child(from, to, "child");
        if (!is("again")) _exit(0);
        pid = fork();
        if (!pid) {
            verify_child(from, to, "grandchild");
            _exit(0);
        }
        need_right(pid);
        _exit(0);
    }
    parent_work(pid);
    // The parent has it all, and may have it forked again.
    advise(FROM, END, MADV_DOFORK);
    fork_and_verify();
    return done();
}
