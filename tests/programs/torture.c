// Writes and verifies memory in every way a program can: a pager below must never lose a byte.
//
//   torture [-s SECONDS] [-t THREADS] [-m MIB] [-r SEED] [-d DIR] [-o OPERATION,...]
//
// Every page holds a pattern that follows from its tag; tags are kept beside the pages, 0 for a page
// of zeroes. Each thread has regions of its own; shared regions are used under their locks. Exit
// code 0: every byte was right. 1: a byte was wrong, told on standard error. 2: a call failed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, OWN = 6, SHARED = 4, GIFTS = 8 };

// Marks the tag of a page that may read as zeroes as well: MADV_FREE was called.
#define MAYBE_ZERO (1ull << 63)

typedef struct {
    char *base;
    size_t pages, pages_max;
    uint64_t *tags;
    int fixed; // not ours to unmap: .bss, .data, heap
    pthread_mutex_t lock;
} Region;

typedef struct {
    int number;
    uint64_t random;
    Region own[OWN];
    pthread_t thread;
} Worker;

static double seconds = 5;
static int threads = 4;
static size_t mib = 64;
static uint64_t seed = 1;
static const char *directory = "/var/tmp";
static const char *chosen;
static const char *self_path;

static Worker workers[64];
static Region shared[SHARED];
static double end_at;
static uint64_t visits;
// Held shared by who uses descriptors, exclusively by who closes them all.
static pthread_rwlock_t descriptors = PTHREAD_RWLOCK_INITIALIZER;

static char bss[6 << 20] __attribute__((aligned(4096)));
static char data[2 << 20] __attribute__((aligned(4096))) = {1};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void end(int code, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int length = snprintf(line, sizeof line, "torture: %d: ", getpid());
    length += vsnprintf(line + length, sizeof line - length - 1, format, args);
    va_end(args);
    line[length++] = '\n';
    if (write(2, line, length) < 0) _exit(3);
    _exit(code);
}

#define NEED(condition) ((condition) ? (void)0 : end(2, "%s:%d: %s: errno %d", __FILE__, __LINE__, #condition, errno))

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t next(Worker *w) { return mix(w->random += 0x9e3779b97f4a7c15ull); }
static uint64_t below(Worker *w, uint64_t n) { return next(w) % n; }
static uint64_t new_tag(Worker *w) { return (next(w) & ~MAYBE_ZERO) | 1; }

static void fill(void *page, uint64_t tag) {
    uint64_t *words = page;
    for (int i = 0; i < WORDS; i++) words[i] = tag ? tag + i * 0x9e3779b97f4a7c15ull : 0;
}

// Whether a page is that of `tag`; the first wrong word is told through `at`.
static int holds(const volatile uint64_t *words, uint64_t tag, int *at) {
    for (int i = 0; i < WORDS; i++) {
        if (words[i] != (tag ? tag + i * 0x9e3779b97f4a7c15ull : 0)) {
            *at = i;
            return 0;
        }
    }
    return 1;
}

static void check_page(const char *page, uint64_t tag, const char *what) {
    int at = 0;
    const volatile uint64_t *words = (const volatile uint64_t *)page;
    __atomic_fetch_add(&visits, 1, __ATOMIC_RELAXED);
    if (holds(words, tag & ~MAYBE_ZERO, &at)) return;
    int ignored;
    if (tag & MAYBE_ZERO && holds(words, 0, &ignored)) return;
    end(1, "%s: page %p word %d is %llx, tag %llx, read again %llx", what, page, at,
        (unsigned long long)words[at], (unsigned long long)tag, (unsigned long long)words[at]);
}

static char *at(Region *r, size_t page) { return r->base + page * PAGE; }

static void check(Region *r, size_t page, const char *what) { check_page(at(r, page), r->tags[page], what); }

static void put(Worker *w, Region *r, size_t page) {
    uint64_t tag = new_tag(w);
    fill(at(r, page), tag);
    r->tags[page] = tag;
}

static void check_region(Region *r, const char *what) {
    for (size_t i = 0; i < r->pages; i++) check(r, i, what);
}

static void *map(size_t pages) {
    void *base = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(base != MAP_FAILED);
    return base;
}

static void make(Region *r, size_t pages) {
    r->pages = pages, r->pages_max = pages * 2;
    r->base = map(pages);
    r->tags = calloc(r->pages_max, sizeof *r->tags);
    NEED(r->tags);
    pthread_mutex_init(&r->lock, 0);
}

static void make_fixed(Region *r, char *base, size_t pages, uint64_t first_word) {
    r->base = base, r->pages = r->pages_max = pages, r->fixed = 1;
    r->tags = calloc(pages, sizeof *r->tags);
    NEED(r->tags);
    NEED(*(uint64_t *)base == first_word);
    *(uint64_t *)base = 0;
    pthread_mutex_init(&r->lock, 0);
}

// --- operations: each acts on one region, which the caller alone uses --------------------------

static void op_rw(Worker *w, Region *r) {
    size_t from = below(w, r->pages), count = 1 + below(w, 64);
    int write = below(w, 2), stride = below(w, 4) ? 1 : 1 + below(w, 37);
    for (size_t i = 0; i < count; i++) {
        size_t page = (from + i * stride) % r->pages;
        check(r, page, "rw");
        if (write) put(w, r, page);
    }
}

static void part(Worker *w, Region *r, size_t *from, size_t *count) {
    *from = below(w, r->pages);
    *count = 1 + below(w, r->pages - *from < 96 ? r->pages - *from : 96);
}

static void forget(Worker *w, Region *r, int advice) {
    size_t from, count;
    if (r->base == data) return op_rw(w, r); // There the file would come back.
    part(w, r, &from, &count);
    NEED(!madvise(at(r, from), count * PAGE, advice));
    for (size_t i = from; i < from + count; i++)
        r->tags[i] = advice == MADV_FREE && r->tags[i] ? r->tags[i] | MAYBE_ZERO : 0;
    check(r, from + below(w, count), "after madvise");
}

static void op_dontneed(Worker *w, Region *r) { forget(w, r, MADV_DONTNEED); }
static void op_free(Worker *w, Region *r) { forget(w, r, MADV_FREE); }

static void op_advise(Worker *w, Region *r) {
    // None that leaves its mark on the mapping: mremap takes one mapping at a time.
    static const int advices[] = {MADV_WILLNEED, MADV_NORMAL, 20 /* COLD */, 21 /* PAGEOUT */,
                                  22 /* POPULATE_READ */, 23 /* POPULATE_WRITE */};
    size_t from, count;
    part(w, r, &from, &count);
    // Not every kernel knows every advice.
    (void)madvise(at(r, from), count * PAGE, advices[below(w, sizeof advices / sizeof *advices)]);
    check(r, from, "after advice");
}

static void op_remap(Worker *w, Region *r) {
    if (r->fixed) return op_rw(w, r);
    size_t pages = r->pages_max / 4 + below(w, r->pages_max / 2);
    if (below(w, 2)) {
        NEED(!munmap(r->base, r->pages * PAGE));
        r->base = map(pages);
    } else {
        // Over the old mapping; what is left of it goes.
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (pages > r->pages) pages = r->pages;
        NEED(mmap(r->base, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == r->base);
        if (pages < r->pages) NEED(!munmap(at(r, pages), (r->pages - pages) * PAGE));
    }
    r->pages = pages;
    memset(r->tags, 0, r->pages_max * sizeof *r->tags);
    check(r, below(w, pages), "new mapping");
}

static void op_mremap(Worker *w, Region *r) {
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
    memset(r->tags + kept, 0, (r->pages_max - kept) * sizeof *r->tags);
    check(r, below(w, kept), "moved");
    check(r, pages - 1, "moved, last");
    put(w, r, pages - 1);
}

static void op_protect(Worker *w, Region *r) {
    static const int prots[] = {PROT_READ, PROT_NONE, PROT_READ | PROT_EXEC};
    size_t from, count;
    part(w, r, &from, &count);
    int prot = prots[below(w, 3)];
    NEED(!mprotect(at(r, from), count * PAGE, prot));
    if (prot & PROT_READ)
        for (size_t i = from; i < from + count; i += 3) check(r, i, "read-only");
    // Meanwhile others page.
    for (size_t i = 0; i < r->pages; i += 5)
        if (i < from || i >= from + count) check(r, i, "beside protected");
    NEED(!mprotect(at(r, from), count * PAGE, PROT_READ | PROT_WRITE));
    for (size_t i = from; i < from + count; i++) check(r, i, "writable again");
    put(w, r, from);
}

static void wait_for(pid_t pid, const char *what) {
    int status;
    NEED(pid > 0);
    while (waitpid(pid, &status, 0) < 0) NEED(errno == EINTR);
    if (status) end(1, "%s: child %d ended with status %x", what, pid, status);
}

// What a child does with its copy: everything is right, stays right, and is its own.
static void in_child(Worker *w, Region *r, const char *what) {
    w->random ^= getpid();
    check_region(r, what);
    for (size_t i = 0; i < r->pages; i += 1 + below(w, 4)) put(w, r, i);
    Region fresh = {0};
    make(&fresh, 256);
    for (size_t i = 0; i < fresh.pages; i++) put(w, &fresh, i);
    check_region(r, what);
    check_region(&fresh, what);
    for (int i = 0; i < OWN; i++) check(&w->own[i], below(w, w->own[i].pages), what);
    op_mremap(w, r);
    op_dontneed(w, r);
    check_region(r, what);
}

static void op_fork(Worker *w, Region *r) {
    pid_t pid = fork();
    if (!pid) {
        in_child(w, r, "child");
        _exit(0);
    }
    for (size_t i = 0; i < r->pages; i += 3) put(w, r, i); // The child must not see these.
    wait_for(pid, "fork");
    check_region(r, "after fork");
}

// A child that ends before its own child does; the pipe tells when that one is done.
static void op_orphan(Worker *w, Region *r) {
    int ends[2];
    char verdict = 0;
    pthread_rwlock_rdlock(&descriptors);
    NEED(!pipe(ends));
    pid_t pid = fork();
    if (!pid) {
        check(r, below(w, r->pages), "in between");
        if (fork()) _exit(0);
        close(ends[0]);
        in_child(w, r, "grandchild");
        NEED(write(ends[1], "y", 1) == 1);
        _exit(0);
    }
    close(ends[1]);
    wait_for(pid, "orphan");
    ssize_t got;
    while ((got = read(ends[0], &verdict, 1)) < 0 && errno == EINTR) {}
    if (got != 1 || verdict != 'y') end(1, "the grandchild came to a bad end");
    close(ends[0]);
    pthread_rwlock_unlock(&descriptors);
}

static char *const inner[] = {"torture", "-s", "0.2", "-t", "2", "-m", "12", "-o", "rw,dontneed,mremap", 0};
extern char **environ;

static void op_exec(Worker *w, Region *r) {
    pid_t pid = fork();
    if (!pid) {
        check(r, below(w, r->pages), "before exec");
        execv(self_path, inner);
        end(2, "exec: errno %d", errno);
    }
    wait_for(pid, "exec");
}

static void op_spawn(Worker *w, Region *r) {
    pid_t pid;
    NEED(!posix_spawn(&pid, self_path, 0, 0, inner, environ));
    op_rw(w, r);
    wait_for(pid, "spawn");
}

// --- system calls into memory that may be paged out --------------------------------------------

static void op_pipe(Worker *w, Region *r) {
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

static void op_file(Worker *w, Region *r) { through_file(w, r, 0, "file"); }
static void op_direct(Worker *w, Region *r) { through_file(w, r, O_DIRECT, "direct"); }

// A pipe may refer to the pages themselves: whoever reads sees what they were, or what the program
// wrote since, and nothing else.
static void op_vmsplice(Worker *w, Region *r) {
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

static void op_closefrom(Worker *w, Region *r) {
    pthread_rwlock_wrlock(&descriptors);
    for (int i = 3; i < 64; i++) NEED(dup2(2, i) == i);
    closefrom(3);
    pthread_rwlock_unlock(&descriptors);
    check(r, below(w, r->pages), "after closefrom");
}

// --- signals, locks ----------------------------------------------------------------------------

static __thread Region *signalled;
static __thread Worker *signalled_worker;

static void handler(int number) {
    (void)number;
    int kept = errno;
    Region *r = signalled;
    for (int i = 0; r && i < 16; i++) check(r, below(signalled_worker, r->pages), "in a handler");
    if (r) put(signalled_worker, r, below(signalled_worker, r->pages));
    errno = kept;
}

static void op_signal(Worker *w, Region *r) {
    signalled_worker = w, signalled = r;
    for (int i = 0; i < 8; i++) NEED(!pthread_kill(pthread_self(), SIGUSR1));
    signalled = 0;
}

static void use_other_stack(void) {
    stack_t stack = {.ss_sp = map(16), .ss_size = 16 * PAGE};
    NEED(!sigaltstack(&stack, 0));
}

static void op_mlock(Worker *w, Region *r) {
    size_t from = below(w, r->pages - 8);
    if (mlock(at(r, from), 8 * PAGE)) {
        NEED(errno == ENOMEM || errno == EPERM || errno == EAGAIN);
        return;
    }
    for (size_t i = 0; i < r->pages; i++) check(r, i, "beside locked");
    for (int i = 0; i < 8; i++) check(r, from + i, "locked"), put(w, r, from + i);
    NEED(!munlock(at(r, from), 8 * PAGE));
}

// --- the run -----------------------------------------------------------------------------------

static struct {
    const char *name;
    void (*act)(Worker *, Region *);
    int weight; // of all the weights chosen
    uint64_t count;
} operations[] = {
    {"rw", op_rw, 400, 0},         {"dontneed", op_dontneed, 20, 0}, {"free", op_free, 20, 0},
    {"advise", op_advise, 20, 0},  {"remap", op_remap, 10, 0},       {"mremap", op_mremap, 20, 0},
    {"protect", op_protect, 20, 0}, {"fork", op_fork, 2, 0},         {"orphan", op_orphan, 1, 0},
    {"exec", op_exec, 1, 0},       {"spawn", op_spawn, 1, 0},        {"pipe", op_pipe, 20, 0},
    {"file", op_file, 5, 0},       {"direct", op_direct, 5, 0},      {"vmsplice", op_vmsplice, 5, 0},
    {"closefrom", op_closefrom, 2, 0}, {"signal", op_signal, 20, 0}, {"mlock", op_mlock, 5, 0},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static int is_chosen(const char *name) {
    size_t length = strlen(name);
    for (const char *p = chosen; p && (p = strstr(p, name)); p++)
        if ((p == chosen || p[-1] == ',') && (!p[length] || p[length] == ',')) return 1;
    return !chosen;
}

static void one_operation(Worker *w, int total) {
    int pick = below(w, total), i = 0;
    while (pick >= operations[i].weight) pick -= operations[i++].weight;
    int other = below(w, 4) == 0;
    Region *r = other ? &shared[below(w, SHARED)] : &w->own[below(w, OWN)];
    if (other) pthread_mutex_lock(&r->lock);
    operations[i].act(w, r);
    if (other) pthread_mutex_unlock(&r->lock);
    __atomic_fetch_add(&operations[i].count, 1, __ATOMIC_RELAXED);
}

static void *work(void *argument) {
    Worker *w = argument;
    int total = 0;
    use_other_stack();
    for (int i = 0; i < OPERATIONS; i++) total += operations[i].weight;
    for (int i = 0; i < OWN; i++)
        for (size_t k = 0; k < w->own[i].pages; k++) put(w, &w->own[i], k);
    while (now() < end_at) one_operation(w, total);
    for (int i = 0; i < OWN; i++) check_region(&w->own[i], "at the end");
    return 0;
}

static void set_up(void) {
    size_t pages = mib * 256, fixed = sizeof bss / PAGE + sizeof data / PAGE;
    size_t each = (pages > 2 * fixed ? pages - fixed : pages / 2) / (threads * OWN + SHARED - 1);
    if (each < 48) each = 48;
    for (int t = 0; t < threads; t++) {
        workers[t].number = t;
        workers[t].random = mix(seed * 1000 + t);
        for (int i = 0; i < OWN; i++) make(&workers[t].own[i], each);
    }
    for (int i = 2; i < SHARED; i++) make(&shared[i], each);
    make_fixed(&shared[0], bss, sizeof bss / PAGE, 0);
    make_fixed(&shared[1], data, sizeof data / PAGE, 1);
    // One of the heap itself.
    char *heap = sbrk(0);
    size_t skip = -(uintptr_t)heap & (PAGE - 1);
    heap = sbrk(skip + each * PAGE);
    NEED(heap != (char *)-1);
    munmap(workers[0].own[0].base, each * PAGE);
    make_fixed(&workers[0].own[0], heap + skip, each, 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigfillset(&action.sa_mask);
    NEED(!sigaction(SIGUSR1, &action, 0));
    NEED(!sigaction(SIGALRM, &action, 0));
    struct itimerval every = {{0, 7000}, {0, 7000}};
    NEED(!setitimer(ITIMER_REAL, &every, 0));
}

static void read_arguments(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "s:t:m:r:d:o:")) > 0) {
        switch (option) {
        case 's': seconds = atof(optarg); break;
        case 't': threads = atoi(optarg); break;
        case 'm': mib = atoi(optarg); break;
        case 'r': seed = atoll(optarg); break;
        case 'd': directory = optarg; break;
        case 'o': chosen = optarg; break;
        default: end(2, "usage: torture [-s SECONDS] [-t THREADS] [-m MIB] [-r SEED] [-d DIR] [-o OPERATION,...]");
        }
    }
    NEED(threads > 0 && threads <= 64);
    int any = 0;
    for (int i = 0; i < OPERATIONS; i++)
        if (is_chosen(operations[i].name)) any = 1;
        else operations[i].weight = 0;
    if (!any) end(2, "no such operation: %s", chosen);
}

int main(int argc, char **argv) {
    static char path[4096];
    read_arguments(argc, argv);
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    NEED(length > 0);
    self_path = path;
    set_up();
    end_at = now() + seconds;
    for (int t = 0; t < threads; t++) NEED(!pthread_create(&workers[t].thread, 0, work, &workers[t]));
    for (int t = 0; t < threads; t++) NEED(!pthread_join(workers[t].thread, 0));
    for (int i = 0; i < SHARED; i++) check_region(&shared[i], "at the end, shared");
    if (strcmp(argv[0], "torture")) {
        printf("torture: %llu pages verified;", (unsigned long long)visits);
        for (int i = 0; i < OPERATIONS; i++)
            if (operations[i].weight) printf(" %s %llu", operations[i].name, (unsigned long long)operations[i].count);
        printf("\n");
    }
    return 0;
}
