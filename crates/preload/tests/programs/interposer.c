// A library that defines functions of libc's anew, as fakeroot's does, and that no pager's thread may get into: it has no thread-local
// data of libc's. Preloaded into programs that have one thread.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Without libc: what it has might be defined anew in turn.
static long bare(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static void only_the_program(const char *name, long length) {
    if (bare(SYS_gettid, 0, 0, 0) == bare(SYS_getpid, 0, 0, 0)) return;
    bare(SYS_write, 2, (long)name, length);
    bare(SYS_exit_group, 99, 0, 0);
}

// Under a name of its own in C: some are declared with other parameters.
#define DEFINE(result, name, parameters, arguments)                 \
    result anew_##name parameters __asm__(#name);                   \
    result anew_##name parameters {                                 \
        static result(*original) parameters;                        \
        only_the_program(#name "\n", sizeof #name);                 \
        if (!original) original = dlsym(RTLD_NEXT, #name);          \
        return original arguments;                                  \
    }

DEFINE(int, statx, (int d, const char *p, int f, unsigned m, struct statx *s), (d, p, f, m, s))
DEFINE(int, close, (int f), (f))
DEFINE(int, madvise, (void *a, size_t n, int how), (a, n, how))
DEFINE(int, munmap, (void *a, size_t n), (a, n))
DEFINE(void *, mmap, (void *a, size_t n, int p, int f, int d, off_t o), (a, n, p, f, d, o))
DEFINE(int, clock_gettime, (clockid_t c, struct timespec *t), (c, t))
DEFINE(ssize_t, read, (int f, void *b, size_t n), (f, b, n))
DEFINE(ssize_t, write, (int f, const void *b, size_t n), (f, b, n))
DEFINE(ssize_t, readlink, (const char *p, char *b, size_t n), (p, b, n))
DEFINE(int, fcntl, (int f, int c, long a), (f, c, a))
DEFINE(long, syscall, (long n, long a, long b, long c, long d, long e, long f), (n, a, b, c, d, e, f))
