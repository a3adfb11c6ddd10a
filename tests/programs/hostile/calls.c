// Other calls that reach into memory that is paged, or change how the kernel treats it.
//
// vm: process_vm_readv and process_vm_writev of oneself and from a child. vm-much: all of it, by large calls from a child. names: prctl(PR_SET_VMA) over parts of it.
// thp: PR_SET_THP_DISABLE. merge: PR_SET_MEMORY_MERGE and MADV_MERGEABLE. personality: READ_IMPLIES_EXEC, then new
// memory. personality-first: READ_IMPLIES_EXEC before paging begins, with older memory and new. policy: mbind, and move_pages to the same node. splice: vmsplice into a pipe, then overwritten.
// altstack: signals on a stack that is paged. futex: a futex in a page that is paged.
// futex-changes: operations by which the kernel changes words of pages that are out. soft-dirty: clear_refs.
// tasks: the number of threads by the links of /proc/self/task. move-none: mremap of no bytes where nothing is mapped.
// deadline: SCHED_DEADLINE for a moment, again and again. deadline-first: from before paging begins, so that the thread may begin no other. grows-down: MAP_GROWSDOWN memory that cannot be read grows by a call that fails, and can be read then, in a child too.
// small-stack: calls by a coroutine that has 3 KiB of stack.
#include "hostile.h"
#include <linux/futex.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <ucontext.h>

#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#endif
enum { FROM = 7000, COUNT = 200 };

static void peek_and_poke(pid_t of) {
    static char page[PAGE];
    for (size_t i = FROM; i < FROM + COUNT; i++) {
        struct iovec here = {page, PAGE}, there = {at(i), PAGE};
        ssize_t got = process_vm_readv(of, &here, 1, &there, 1, 0);
        if (got < 0 && errno == EPERM) missing("process_vm_readv");
        NEED(got == PAGE);
        verify_at(page, i, generation[i], "read");
        generation[i]++;
        fill_at(page, i, generation[i]);
        NEED(process_vm_writev(of, &here, 1, &there, 1, 0) == PAGE);
    }
}

static void peek_from_child(void) {
    pid_t pid = fork();
    if (!pid) {
        peek_and_poke(getppid());
        _exit(0);
    }
    need_right(pid);
    for (size_t i = FROM; i < FROM + COUNT; i++) generation[i]++;
}

// 1.5 MiB a call: more pages at once than the pager keeps back.
static void write_much_from_child(void) {
    enum { BATCH = 384 };
    pid_t pid = fork();
    if (!pid) {
        char *batch = map(BATCH);
        for (size_t first = 0; first < pages; first += BATCH) {
            size_t count = pages - first < BATCH ? pages - first : BATCH;
            for (size_t i = 0; i < count; i++) fill_at(batch + i * PAGE, first + i, generation[first + i] + 1);
            struct iovec here = {batch, count * PAGE}, there = {at(first), count * PAGE};
            ssize_t put = process_vm_writev(getppid(), &here, 1, &there, 1, 0);
            if (put < 0 && errno == EPERM) missing("process_vm_writev");
            NEED(put == (ssize_t)(count * PAGE));
        }
        _exit(0);
    }
    need_right(pid);
    for (size_t i = 0; i < pages; i++) generation[i]++;
}

static void name_parts(void) {
    for (size_t i = FROM; i < FROM + COUNT; i += 20)
        if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at(i), 10 * PAGE, i % 40 ? "one" : "two")) missing("PR_SET_VMA");
}

static void implied(void) {
    NEED(personality(READ_IMPLIES_EXEC) != -1);
    char *fresh = map(16 * MIB);
    for (size_t i = 0; i < 16 * MIB; i++) fill_at(fresh + i * PAGE, i, 6);
    verify_all("beside what can be executed");
    for (size_t i = 0; i < 16 * MIB; i++) verify_at(fresh + i * PAGE, i, 6, "can be executed");
    NEED(!munmap(fresh, 16 * MIB * PAGE));
    NEED(personality(PER_LINUX) != -1);
}

static void place_on_nodes(void) {
    unsigned long node = 1;
    if (syscall(SYS_mbind, at(FROM), COUNT * PAGE, 1 /* MPOL_PREFERRED */, &node, 8, 2 /* MPOL_MF_MOVE */)) missing("mbind");
    static void *which[COUNT];
    static int nodes[COUNT], status[COUNT];
    for (size_t i = 0; i < COUNT; i++) which[i] = at(FROM + i);
    NEED(syscall(SYS_move_pages, 0, COUNT, which, nodes, status, 2) >= 0);
}

static void give_to_pipe(void) {
    int ends[2];
    static char page[PAGE];
    NEED(!pipe(ends));
    struct iovec gift = {at(FROM), 8 * PAGE};
    NEED(vmsplice(ends[1], &gift, 1, 0) == 8 * PAGE);
    verify_all("beside the pipe");
    for (size_t i = FROM; i < FROM + 8; i++) {
        for (size_t got = 0; got < PAGE;) {
            ssize_t more = read(ends[0], page + got, PAGE - got);
            NEED(more > 0);
            got += more;
        }
        verify_at(page, i, generation[i], "out of the pipe");
    }
    close(ends[0]), close(ends[1]);
}

static volatile size_t handled;

static void handle(int number) {
    (void)number;
    verify(FROM, FROM + COUNT, "in a handler");
    handled++;
}

static void signal_on_stack(void) {
    stack_t stack = {.ss_sp = map(64), .ss_size = 64 * PAGE};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    NEED(!sigaltstack(&stack, 0) && !sigaction(SIGUSR1, &action, 0));
    for (int i = 0; i < 5; i++) {
        verify_all("before a signal");
        NEED(!raise(SIGUSR1));
    }
    NEED(handled >= 5);
}

static void *wake(void *argument) {
    uint32_t *futex = argument;
    verify_all("before the wake");
    __atomic_store_n(futex, 1, __ATOMIC_SEQ_CST);
    while (syscall(SYS_futex, futex, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0) == 0 && __atomic_load_n(futex, __ATOMIC_SEQ_CST) != 2)
        sched_yield();
    return 0;
}

static void wait_in_page(void) {
    pthread_t waker;
    uint32_t *futex = (uint32_t *)map(1);
    NEED(!pthread_create(&waker, 0, wake, futex));
    while (!__atomic_load_n(futex, __ATOMIC_SEQ_CST)) syscall(SYS_futex, futex, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
    __atomic_store_n(futex, 2, __ATOMIC_SEQ_CST);
    NEED(!pthread_join(waker, 0));
}

// A sum that changes nothing in words of the pattern, and locks with priority inheritance in pages of their own.
static void change_words(void) {
    enum { LOCKS = 4000, APART = 101 };
    for (size_t i = 7; i < pages; i += APART) {
        uint32_t mine = 0, *word = (uint32_t *)(at(i) + 64);
        int operation = FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, -1);
        NEED(syscall(SYS_futex, &mine, FUTEX_WAKE_OP_PRIVATE, 1, 1, word, operation) == 0);
    }
    char *locks = map(LOCKS);
    for (size_t i = 0; i < LOCKS; i++) fill_at(locks + i * PAGE, i, 3), *(uint32_t *)(locks + i * PAGE) = 0;
    verify_all("while the locks leave");
    for (size_t i = 7; i < LOCKS; i += APART)
        NEED(!syscall(SYS_futex, locks + i * PAGE, FUTEX_LOCK_PI_PRIVATE, 0, 0, 0, 0));
    verify_all("while they leave, held");
    for (size_t i = 7; i < LOCKS; i += APART) {
        NEED(!syscall(SYS_futex, locks + i * PAGE, FUTEX_UNLOCK_PI_PRIVATE, 0, 0, 0, 0));
        NEED(*(uint32_t *)(locks + i * PAGE) == 0);
    }
    REFUSED(syscall(SYS_futex, 8, FUTEX_LOCK_PI_PRIVATE, 0, 0, 0, 0), EFAULT);
    NEED(!mprotect(locks, PAGE, PROT_READ));
    REFUSED(syscall(SYS_futex, locks, FUTEX_LOCK_PI_PRIVATE, 0, 0, 0, 0), EFAULT);
    NEED(!munmap(locks, LOCKS * PAGE));
}

static void clear_references(void) {
    int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, "4", 1) != 1) missing("clear_refs");
    NEED(write(file, "1", 1) == 1);
    close(file);
}

static void *wait_for_end(void *argument) {
    NEED(!pthread_mutex_lock(argument) && !pthread_mutex_unlock(argument));
    return 0;
}

// Two links and one for each thread, whichever way they are asked for.
static void need_threads(nlink_t threads) {
    struct stat found;
    int proc = open("/proc", O_PATH | O_CLOEXEC), task = open("/proc/self/task", O_RDONLY | O_CLOEXEC);
    NEED(proc >= 0 && task >= 0);
    NEED(!fstatat(proc, "self/task/", &found, 0) && found.st_nlink == 2 + threads);
    NEED(!stat("/proc/self/task", &found) && found.st_nlink == 2 + threads);
    NEED(!fstat(task, &found) && found.st_nlink == 2 + threads);
    NEED(!syscall(SYS_newfstatat, proc, "self/task", &found, 0) && found.st_nlink == 2 + threads);
    NEED(!syscall(SYS_fstat, task, &found) && found.st_nlink == 2 + threads);
    NEED(!syscall(SYS_stat, "/proc/self/task", &found) && found.st_nlink == 2 + threads);
    struct statx more;
    NEED(!statx(task, "", AT_EMPTY_PATH, STATX_NLINK, &more) && more.stx_nlink == 2 + threads);
    NEED(!syscall(SYS_statx, proc, "self/task", 0, STATX_NLINK, &more) && more.stx_nlink == 2 + threads);
    int self = openat(proc, "self", O_PATH | O_CLOEXEC);
    NEED(!fstatat(self, "task", &found, 0) && found.st_nlink == 2 + threads);
    NEED(!fstatat(task, ".", &found, 0) && found.st_nlink == 2 + threads);
    NEED(!statx(self, "task", 0, STATX_NLINK, &more) && more.stx_nlink == 2 + threads);
    close(proc), close(task), close(self);
}

static void count_threads(void) {
    pthread_t threads[3];
    pthread_mutex_t *gate = (pthread_mutex_t *)map(1);
    need_threads(1);
    NEED(!pthread_mutex_init(gate, 0) && !pthread_mutex_lock(gate));
    for (int i = 0; i < 3; i++) NEED(!pthread_create(&threads[i], 0, wait_for_end, gate));
    need_threads(4);
    NEED(!pthread_mutex_unlock(gate));
    for (int i = 0; i < 3; i++) NEED(!pthread_join(threads[i], 0));
    NEED(!munmap(gate, PAGE));
}

static void move_none(void) {
    char *hole = map(4);
    NEED(!munmap(hole, PAGE));
    NEED(mremap(hole, 0, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, hole + 2 * PAGE) == MAP_FAILED && errno == EFAULT);
    NEED(mremap(hole, 0, PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    NEED(!munmap(hole, 4 * PAGE));
}

static void grow_down(void) {
    enum { ROOM = 2000, TOP = 1500, SIZE = 300, MORE = 30 };
    char *room = map(ROOM), *low = room + TOP * PAGE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, ends[2];
    NEED(!munmap(room, ROOM * PAGE) && !pipe(ends));
    NEED(mmap(low, SIZE * PAGE, PROT_NONE, flags, -1, 0) == low);
    verify_all("beside what grows"), usleep(200000);
    NEED(write(ends[1], low - MORE * PAGE, 1) == -1 && errno == EFAULT);
    NEED(!mprotect(low - MORE * PAGE, MORE * PAGE, PROT_READ | PROT_WRITE));
    // It is found by the next look at the mappings.
    verify_all("grown"), usleep(200000), verify_all("looked at");
    pid_t pid = fork();
    if (!pid) {
        for (int i = 1; i <= MORE; i++) NEED(write(ends[1], low - i * PAGE, 1) == 1);
        _exit(0);
    }
    need_right(pid);
    NEED(!munmap(low - MORE * PAGE, (MORE + SIZE) * PAGE) && !close(ends[0]) && !close(ends[1]));
}

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

// Only who may run on every CPU may have a deadline: nobody is to see that a thread which faults is bound to one.
static void have_deadline(void) {
    struct attributes none = {.size = 48}, some = {48, 6, 1, 0, 0, 10000000, 100000000, 100000000};
    for (int i = 0; i < 10; i++) {
        verify_all("at full speed");
        if (syscall(SYS_sched_setattr, 0, &some, 0)) missing("SCHED_DEADLINE");
        NEED(!syscall(SYS_sched_setattr, 0, &none, 0));
    }
}

static ucontext_t caller, coroutine;

static void call(void) {
    struct stat seen;
    int word = 0;
    NEED(!stat("/proc/self/task", &seen) && !stat("/", &seen) && !fstat(2, &seen));
    syscall(SYS_fstat, 2, &seen);
    syscall(SYS_futex, &word, FUTEX_WAKE, 1, 0, 0, 0);
    NEED(!syscall(SYS_madvise, at(FROM), COUNT * PAGE, MADV_WILLNEED));
    char *fresh = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(fresh != MAP_FAILED && !mprotect(fresh, MIB, PROT_READ) && !madvise(fresh, MIB, MADV_DONTNEED) && !munmap(fresh, MIB));
}

// A stack that is too small shows below it.
static void call_on_small_stack(void) {
    enum { STACK = 3072, BELOW = 2 * PAGE };
    static char area[BELOW + STACK] __attribute__((aligned(16)));
    call(); // what is bound lazily is bound
    memset(area, 0x5a, sizeof area);
    NEED(!getcontext(&coroutine));
    coroutine.uc_stack.ss_sp = area + BELOW;
    coroutine.uc_stack.ss_size = STACK;
    coroutine.uc_link = &caller;
    makecontext(&coroutine, call, 0);
    NEED(!swapcontext(&caller, &coroutine));
    for (size_t i = 0; i < BELOW; i++) NEED(area[i] == 0x5a);
}

static void act(void) {
    if (is("vm")) peek_and_poke(getpid()), verify_all("poked"), peek_from_child();
    else if (is("names")) name_parts();
    else if (is("thp")) NEED(!prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    else if (is("merge")) {
        NEED(!madvise(at(FROM), COUNT * PAGE, MADV_MERGEABLE) || errno == EINVAL);
        if (prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0)) missing("PR_SET_MEMORY_MERGE (Linux 6.4)");
    } else if (is("personality") || is("personality-first")) implied();
    else if (is("policy")) place_on_nodes();
    else if (is("splice")) give_to_pipe();
    else if (is("altstack")) signal_on_stack();
    else if (is("futex")) wait_in_page();
    else if (is("futex-changes")) change_words();
    else if (is("soft-dirty")) clear_references();
    else if (is("tasks")) count_threads();
    else if (is("deadline")) have_deadline();
    else if (is("deadline-first")) verify_all("without one");
    else if (is("move-none")) move_none();
    else if (is("grows-down")) grow_down();
    else if (is("small-stack")) call_on_small_stack();
    else if (is("vm-much")) write_much_from_child();
    else end(2, "no such variant");
}

// More than the limit, of which half is older than the personality.
static void begin_implied(void) {
    enum { HALF = 16 * MIB };
    char *halves[2];
    for (int half = 0; half < 2; half++) {
        halves[half] = map(HALF);
        NEED(personality(READ_IMPLIES_EXEC) != -1);
    }
    for (int round = 1; round < 4; round++)
        for (int half = 0; half < 2; half++)
            for (size_t i = 0; i < HALF; i++) {
                if (round > 1) verify_at(halves[half] + i * PAGE, i, round - 1, "older or newer");
                fill_at(halves[half] + i * PAGE, i, round);
            }
}

static void deadline_from(void) {
    struct attributes some = {48, 6, 0, 0, 0, 80000000, 100000000, 100000000};
    if (syscall(SYS_sched_setattr, 0, &some, 0)) missing("SCHED_DEADLINE");
}

static void deadline_up_to(void) {
    struct attributes none = {.size = 48}, now = {0};
    NEED(!syscall(SYS_sched_getattr, 0, &now, 48, 0));
    NEED(now.policy == 6 && now.flags == 0 && now.runtime == 80000000);
    NEED(fork() == -1 && errno == EAGAIN);
    NEED(!syscall(SYS_sched_setattr, 0, &none, 0));
}

int main(int count, char **arguments) {
    begin(count, arguments);
    if (is("personality-first")) begin_implied();
    if (is("deadline-first")) deadline_from();
    arena(arguments);
    if (is("deadline-first")) verify_all("at full speed"), deadline_up_to();
    for (int round = 0; round < 2; round++) {
        act();
        verify_all("done");
        for (size_t i = FROM; i < FROM + COUNT; i++) put(i);
    }
    verify_all("written");
    fork_and_verify();
    return done();
}
