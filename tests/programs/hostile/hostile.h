// What the hostile cases share: memory whose every word says where it is, and calls that bypass libc.
//
// A page holds the pattern of its number and its generation; generation 0 is a page of zeroes. A case
// fills more memory than it may keep in RAM, does its thing, and verifies every byte. Exit code 0: as
// natively. 1: a byte was wrong, told on standard error. 2: a call did what it should not. 77: this
// kernel or user cannot, told on standard output.
#ifndef HOSTILE_H
#define HOSTILE_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, PAGES_MAX = 128 << 8, MIB = 256 };

static char *memory;
static size_t pages;
// Beside the memory, and too small to be paged.
static uint8_t generation[PAGES_MAX];
static const char *variant = "";

__attribute__((unused, noreturn, format(printf, 2, 3))) static void end(int code, const char *format, ...) {
    char line[400];
    va_list args;
    va_start(args, format);
    int length = snprintf(line, sizeof line, "%d, %s: ", (int)getpid(), variant);
    length += vsnprintf(line + length, sizeof line - length - 1, format, args);
    va_end(args);
    line[length++] = '\n';
    if (write(code == 77 ? 1 : 2, line, length) < 0) _exit(3);
    _exit(code);
}

#define NEED(condition) \
    ((condition) ? (void)0 : end(2, "%s:%d: %s: errno %d", __FILE__, __LINE__, #condition, errno))

// Fails with `number`, and nothing else will do.
#define REFUSED(call, number)                                                                        \
    do {                                                                                             \
        errno = 0;                                                                                   \
        long got_ = (long)(call);                                                                    \
        if (got_ != -1 || errno != (number)) end(2, "line %d: %s: %ld, errno %d", __LINE__, #call, got_, errno); \
    } while (0)

static inline int is(const char *name) { return !strcmp(variant, name); }

static inline uint64_t word(size_t page, size_t k, uint8_t g) {
    uint64_t x = (page << 9 | k) + ((uint64_t)g << 40);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return g ? (x ^ (x >> 31)) | 1 : 0;
}

static inline char *at(size_t page) { return memory + page * PAGE; }

// Fills the page at `where` as page `page` of generation `g`.
static inline void fill_at(char *where, size_t page, uint8_t g) {
    volatile uint64_t *words = (volatile uint64_t *)where;
    for (size_t k = 0; k < WORDS; k++) words[k] = word(page, k, g);
}

static inline void put(size_t page) {
    uint8_t g = generation[page] + 1;
    generation[page] = g ? g : 1;
    fill_at(at(page), page, generation[page]);
}

static inline void verify_at(const char *where, size_t page, uint8_t g, const char *what) {
    const volatile uint64_t *words = (const volatile uint64_t *)where;
    for (size_t k = 0; k < WORDS; k++) {
        uint64_t found = words[k];
        if (found != word(page, k, g))
            end(1, "%s: page %zu word %zu is %llx%s, generation %d", what, page, k, (unsigned long long)found,
                found ? "" : " (zeroes)", g);
    }
}

static inline void verify(size_t from, size_t to, const char *what) {
    for (size_t i = from; i < to; i++) verify_at(at(i), i, generation[i], what);
}

static inline void verify_all(const char *what) { verify(0, pages, what); }

// From now on these pages are zeroes.
__attribute__((unused)) static void zeroed(size_t from, size_t to) { memset(generation + from, 0, to - from); }

__attribute__((unused)) static char *map(size_t count) {
    char *base = mmap(0, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(base != MAP_FAILED);
    return base;
}

// The memory: MIB of the command line, each page with its pattern, each seen once again.
__attribute__((unused)) static void arena(char **arguments) {
    pages = strtoul(arguments[1], 0, 10) * MIB;
    NEED(pages >= 16 * MIB && pages <= PAGES_MAX);
    memory = map(pages);
    for (size_t i = 0; i < pages; i++) put(i);
    verify_all("filled");
}

__attribute__((unused)) static void begin(int count, char **arguments) {
    if (count != 3) end(2, "usage: %s MIB VARIANT", arguments[0]);
    variant = arguments[2];
}

// From here on pagers have processes of their own.
__attribute__((unused)) static void apart(char **arguments) {
    if (getenv("OUTPAGE_DEBUGGABLE")) return;
    NEED(!setenv("OUTPAGE_DEBUGGABLE", "1", 1));
    execv("/proc/self/exe", arguments);
    NEED(0);
}

__attribute__((unused)) static int done(void) {
    verify_all("at the end");
    return 0;
}

// A system call that no library sees.
__attribute__((always_inline)) static inline long raw(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

// What a child does with its copy: all of it is right, stays right while both write, and is its own.
__attribute__((unused)) static void child_work(void) {
    verify_all("child");
    for (size_t i = 0; i < pages; i += 3) put(i);
    verify_all("child, written");
}

// Waits for `pid`; its status.
__attribute__((unused)) static int await(pid_t pid) {
    int status;
    while (waitpid(pid, &status, __WALL) < 0) NEED(errno == EINTR);
    return status;
}

__attribute__((unused)) static void need_right(pid_t pid) {
    int status = await(pid);
    if (status) end(status == 0x100 ? 1 : 2, "the child ended with status %x", status);
}

// The parent's side of a fork: it writes too, the child ends well, and all is right.
__attribute__((unused)) static void parent_work(pid_t pid) {
    NEED(pid > 0);
    for (size_t i = 0; i < pages; i += 5) put(i);
    need_right(pid);
    verify_all("parent");
}

__attribute__((unused)) static void fork_and_verify(void) {
    pid_t pid = fork();
    if (!pid) {
        child_work();
        _exit(0);
    }
    parent_work(pid);
}

static sigjmp_buf back;

__attribute__((unused)) static void jump(int number) {
    (void)number;
    siglongjmp(back, 1);
}

// Whether a read of `where` ends with SIGSEGV.
__attribute__((unused)) static int faults(const char *where) {
    struct sigaction action = {.sa_handler = jump}, before;
    volatile int fault = 1;
    NEED(!sigaction(SIGSEGV, &action, &before));
    if (!sigsetjmp(back, 1)) {
        (void)*(const volatile char *)where;
        fault = 0;
    }
    NEED(!sigaction(SIGSEGV, &before, 0));
    return fault;
}

__attribute__((unused)) static void missing(const char *what) { end(77, "SKIPPED: %s: errno %d", what, errno); }

// Advice of any kind by process_madvise, in two parts.
__attribute__((unused)) static void advise_self(char *base, size_t len, int advice) {
    struct iovec parts[2] = {{base, len / 2 & -PAGE}};
    parts[1] = (struct iovec){base + parts[0].iov_len, len - parts[0].iov_len};
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    NEED(self >= 0);
    ssize_t got = process_madvise(self, parts, 2, advice, 0);
    if (got < 0 && errno == EINVAL) missing("process_madvise of itself (Linux 6.13)");
    NEED(got == (ssize_t)len && !close(self));
}

#endif
