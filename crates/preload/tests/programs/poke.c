// Writes to its own memory, twice the limit and more, through process_vm_writev, and looks at every page. Exit code 77: the kernel does
// not let a process write to itself so.
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <sys/uio.h>
#include <time.h>

enum { PAGE = 4096, WORDS = PAGE / 8, THREADS = 2, PART = 4096, RUN = 64, SECONDS = 3 };

static uint64_t *buffer, tags[THREADS * PART];

static void verify(long page) {
    for (int i = 0; i < WORDS; i += 73)
        if (buffer[page * WORDS + i] != tags[page]) {
            fprintf(stderr, "page %ld is %lx, not %lx\n", page, buffer[page * WORDS + i], tags[page]);
            _exit(98);
        }
}

// Each thread pushes out what the other is writing.
static void *writer(void *argument) {
    const size_t len = RUN * PAGE;
    uint64_t *from = malloc(len);
    CHECK(from);
    long me = (long)argument;
    unsigned seed = me;
    struct iovec local = {from, len}, remote = {0, len};
    time_t end = time(0) + SECONDS;
    for (uint64_t round = 1; time(0) < end; round++) {
        long first = me * PART + rand_r(&seed) % (PART - RUN);
        for (long i = 0; i < RUN; i++) verify(first + i);
        for (long i = 0; i < RUN * WORDS; i++) from[i] = round << 20 | i / WORDS;
        for (long i = 0; i < RUN; i++) tags[first + i] = round << 20 | i;
        remote.iov_base = buffer + first * WORDS;
        CHECK(process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)len);
    }
    for (long i = 0; i < PART; i++) verify(me * PART + i);
    free(from);
    return NULL;
}

// What the call returns is what the kernel returns.
static void results(void) {
    char from[] = "abcdefghij", to[11] = {0}, *gone = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec three[] = {{from, 3}, {0, 0}, {from + 3, 7}}, two[] = {{to, 5}, {to + 5, 4}};
    CHECK(process_vm_writev(getpid(), three, 3, two, 2, 0) == 9 && !strcmp(to, "abcdefghi"));
    CHECK(syscall(SYS_process_vm_writev, getpid(), three, 1L, two, 2L, 0L) == 3);
    CHECK(process_vm_writev(getpid(), three, 0, two, 2, 0) == 0);
    CHECK(process_vm_writev(getpid(), three, 3, two, 2, 1) == -1 && errno == EINVAL);
    struct iovec away[] = {{to, 2}, {gone, 3}}, negative = {to, SIZE_MAX};
    CHECK(process_vm_writev(getpid(), three, 3, away + 1, 1, 0) == -1 && errno == EFAULT);
    CHECK(process_vm_writev(getpid(), three, 3, away, 2, 0) == 2);
    CHECK(process_vm_writev(getpid(), three, 3, &negative, 1, 0) == -1 && errno == EINVAL);
    CHECK(process_vm_writev(getpid(), 0, 1, two, 1, 0) == -1 && errno == EFAULT);
    // Lists that are not there, the second one from its third part on.
    char *half = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec *cut = (struct iovec *)(half + PAGE) - 2;
    CHECK(!mprotect(half + PAGE, PAGE, PROT_NONE));
    cut[0] = cut[1] = (struct iovec){to, 2};
    CHECK(process_vm_writev(getpid(), three, 1, cut, 2, 0) == 3);
    CHECK(process_vm_writev(getpid(), three, 1, cut, 3, 0) == -1 && errno == EFAULT);
    CHECK(process_vm_writev(getpid(), (void *)gone, 1, two, 1, 0) == -1 && errno == EFAULT);
}

int main(void) {
    pthread_t threads[THREADS];
    buffer = mmap(0, sizeof tags / 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(buffer != MAP_FAILED);
    char byte = 0;
    struct iovec own = {&byte, 1};
    if (process_vm_writev(getpid(), &own, 1, &own, 1, 0) < 0) return 77;
    for (long i = 0; i < THREADS; i++) CHECK(!pthread_create(threads + i, NULL, writer, (void *)i));
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(threads[i], NULL));
    results();
    return 0;
}
