// What the parts of torture share: regions of pages, the model of their bytes, and the operations.
//
// Every page holds a pattern that follows from its tag; tags are kept beside the pages, 0 for a page of zeroes. Each
// thread has regions of its own; shared regions are used under their locks. An operation acts on one region, which its
// caller alone uses. It must not allocate in a child that libc's fork did not make: another thread may have held a lock.
#ifndef TORTURE_H
#define TORTURE_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, OWN = 6, SHARED = 4, PART_MAX = 96 };

// Marks the tag of a page that may read as zeroes as well: MADV_FREE was called.
#define MAYBE_ZERO (1ull << 63)

typedef struct {
    char *base;
    size_t pages, pages_max;
    uint64_t *tags;
    int fixed;  // not ours to unmap: .bss, .data, heap
    int backed; // by a file, which comes back when its pages are discarded: .data
    pthread_mutex_t lock;
} Region;

typedef struct {
    uint64_t random;
    Region own[OWN];
    pthread_t thread;
    int sealed; // mappings that nobody can ever unmap
} Worker;

typedef void Operation(Worker *, Region *);

extern const char *directory, *self_path;
// Held shared by who uses descriptors, exclusively by who closes them all.
extern pthread_rwlock_t descriptors;
extern uint64_t visits;
// Set by an operation that this kernel or user cannot do.
extern __thread int not_here;

#define NEED(condition) ((condition) ? (void)0 : end(2, "%s:%d: %s: errno %d", __FILE__, __LINE__, #condition, errno))

void end(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

// The model.
uint64_t mix(uint64_t x);
uint64_t below(Worker *w, uint64_t n);
uint64_t new_tag(Worker *w);
void fill(void *page, uint64_t tag);
int holds(const volatile uint64_t *words, uint64_t tag, int *at);
void check_page(const char *page, uint64_t tag, const char *what);
void check(Region *r, size_t page, const char *what);
void check_region(Region *r, const char *what);
void check_beside(Region *r, size_t from, size_t count, const char *what);
int advise_somehow(Worker *w, char *base, size_t bytes, int advice);
void put(Worker *w, Region *r, size_t page);
void zero_tags(Region *r, size_t from, size_t count);
void part(Worker *w, Region *r, size_t *from, size_t *count);
void *map(size_t pages);
void make(Region *r, size_t pages);

static inline char *at(Region *r, size_t page) { return r->base + page * PAGE; }

// Children.
void wait_for(pid_t pid, const char *what);
void in_child(Worker *w, Region *r, const char *what);

// A system call that no library sees.
__attribute__((always_inline)) static inline long raw(long number, long a, long b, long c, long d, long e) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

// memory.c
Operation op_rw, op_dontneed, op_free, op_advise, op_remap, op_mremap, op_protect, op_mlock, op_dontunmap, op_guard,
    op_process, op_rawmap, op_rawmove, op_rawdiscard, op_rawprotect, op_rawtrim, op_rawlock;
// beside.c
Operation op_shm, op_memfd, op_uffd, op_seal;
// children.c
Operation op_fork, op_orphan, op_exec, op_spawn, op_clone3, op_clone, op_rawfork, op_vfork, op_vmchild, op_outlive,
    op_wipe, op_dontfork, op_namespace, op_seccomp, op_confine;
// transfers.c
Operation op_pipe, op_file, op_direct, op_vmsplice, op_peek, op_closefrom, op_signal;
void use_other_stack(void);
void handle(int number);

#endif
