// Ends threads whose memory a pager below has had every reason to take away.
//
//   exits MIB [THREADS]
//
// Half of the threads begin before MIB of memory are filled, half after. Each sleeps while the memory
// is filled again, then ends, having touched nothing of its own in between: neither stack nor thread block. What
// the kernel does at a thread's end must happen all the same: its number is cleared and whoever joins
// is woken; a robust mutex that it held, and that lies among other data, passes on with EOWNERDEAD.
// Exit code 1: something did not happen within ten seconds, told on standard error. 2: a call failed.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, RSEQ_UNREGISTER = 1, PATIENCE_S = 10 };

// In glibc since 2.35.
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

typedef struct {
    pthread_mutex_t mutex;
    char rest[PAGE - sizeof(pthread_mutex_t)];
} Own; // a page of its own

static size_t bytes, half;
static char *memory;
static Own *robust;
static pthread_t threads[4096];
// Few and hot: these pages stay.
static uint32_t go;
static unsigned ready;

#define NEED(condition) ((condition) ? (void)0 : need(#condition, __LINE__))
static void need(const char *what, int line) {
    fprintf(stderr, "exits: line %d: %s: errno %d\n", line, what, errno);
    exit(2);
}

static void fill(int with) {
    for (size_t i = 0; i < bytes; i += PAGE) *(uint64_t *)(memory + i) = i * 0x9e3779b97f4a7c15ull + with;
}

// The kernel writes to a thread's rseq area whenever it comes back from a wait.
static void leave_rseq(void) {
    if (!&__rseq_size || !__rseq_size) return;
    char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    NEED(!syscall(SYS_rseq, area, 32, RSEQ_UNREGISTER, 0x53053053) || errno == EINVAL);
}

// Waits for `go` to change, with nothing touched after the call but registers.
static void wait_for_go(void) {
    register long timeout __asm__("r10") = 0;
    long result;
    do {
        __asm__ volatile("syscall"
                         : "=a"(result)
                         : "a"(SYS_futex), "D"(&go), "S"(FUTEX_WAIT), "d"(0), "r"(timeout)
                         : "rcx", "r11", "memory");
    } while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE));
}

__attribute__((noreturn)) static void end_now(void) {
    register long timeout __asm__("r10") = 0;
    __asm__ volatile("1: mov %[futex], %%eax\n\t"
                     "syscall\n\t"
                     "cmpl $0, (%%rdi)\n\t"
                     "je 1b\n\t"
                     "mov %[exit], %%eax\n\t"
                     "xor %%edi, %%edi\n\t"
                     "syscall"
                     :
                     : [futex] "i"(SYS_futex), [exit] "i"(SYS_exit), "D"(&go), "S"(FUTEX_WAIT), "d"(0), "r"(timeout)
                     : "rax", "rcx", "r11", "memory");
    __builtin_unreachable();
}

static void *thread(void *argument) {
    size_t number = (uintptr_t)argument;
    leave_rseq();
    if (number % 4 == 3) NEED(!pthread_mutex_lock(&robust[number].mutex));
    __atomic_add_fetch(&ready, 1, __ATOMIC_RELEASE);
    if (number % 2 == 0) end_now();
    // The others end as threads do, through libc, with a mutex held or not.
    wait_for_go();
    return 0;
}

static void begin(size_t from, size_t to) {
    for (size_t i = from; i < to; i++) NEED(!pthread_create(&threads[i], 0, thread, (void *)(uintptr_t)i));
    while (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) < to) sched_yield();
}

static void make_mutexes(size_t count) {
    pthread_mutexattr_t attributes;
    NEED((robust = mmap(0, count * sizeof(Own), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    for (size_t i = 0; i < count; i++) pthread_mutex_init(&robust[i].mutex, &attributes);
}

int main(int argc, char **argv) {
    size_t count = argc > 2 ? strtoul(argv[2], 0, 0) : 64, lost = 0, kept = 0;
    bytes = (argc > 1 ? strtoul(argv[1], 0, 0) : 64) << 20, half = count / 2;
    NEED(count <= 4096);
    make_mutexes(count);
    begin(0, half);
    NEED((memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
    fill(0);
    begin(half, count);
    for (int with = 1; with < 4; with++) fill(with);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &go, FUTEX_WAKE, INT32_MAX, 0, 0, 0);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    for (size_t i = 0; i < count; i++) lost += pthread_timedjoin_np(threads[i], 0, &until) != 0;
    for (size_t i = 3; i < count; i += 4) kept += pthread_mutex_timedlock(&robust[i].mutex, &until) != EOWNERDEAD;
    if (lost || kept) {
        fprintf(stderr, "exits: of %zu threads %zu were not joined, %zu mutexes did not pass on\n", count, lost, kept);
        _exit(1);
    }
    printf("%zu threads ended\n", count);
    return 0;
}
