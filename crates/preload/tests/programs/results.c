// Results and errno of every patched function, as libc has them without the shim.
#include "check.h"
#include <sys/socket.h>

#define FAILS(call, error)                               \
    do {                                                 \
        errno = 0;                                       \
        CHECK((long)(call) == -1 && errno == (error)); \
    } while (0)

int main(void) {
    long page = sysconf(_SC_PAGESIZE);
    int anonymous = MAP_PRIVATE | MAP_ANONYMOUS, rw = PROT_READ | PROT_WRITE;
    errno = 77;
    char *at = mmap(NULL, 8 * page, rw, anonymous, -1, 0);
    CHECK(at != MAP_FAILED && errno == 77);
    FAILS(mmap(NULL, 0, rw, anonymous, -1, 0), EINVAL);
    FAILS(mmap(NULL, page, rw, MAP_PRIVATE, -1, 0), EBADF);
    FAILS(mmap(NULL, page, rw, anonymous, -1, 1), EINVAL);
    FAILS(mmap(NULL, 1UL << 60, rw, anonymous, -1, 0), ENOMEM);
    FAILS(munmap(at + 1, page), EINVAL);
    FAILS(mprotect(at + 1, page, rw), EINVAL);
    FAILS(madvise(at, page, 12345), EINVAL);
    CHECK(posix_madvise(at, page, 12345) == EINVAL);
    CHECK(posix_madvise(at, page, POSIX_MADV_DONTNEED) == 0);
    at[0] = 1;
    CHECK(posix_madvise(at, page, POSIX_MADV_DONTNEED) == 0 && at[0] == 1);
    CHECK(madvise(at, page, MADV_DONTNEED) == 0 && at[0] == 0);
    FAILS(mremap(at + 1, page, 2 * page, MREMAP_MAYMOVE), EINVAL);
    char *place = mmap(NULL, 8 * page, PROT_NONE, anonymous, -1, 0);
    at[3] = 3;
    CHECK(mremap(at, 8 * page, 8 * page, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    CHECK(place[3] == 3);
    CHECK(mprotect(place, page, PROT_READ) == 0);
    CHECK(pkey_mprotect(place, page, rw, -1) == 0);
    place[4] = 4;
    CHECK(mlock(place, page) == 0 && munlock(place, page) == 0);
    CHECK(mlock2(place, page, MLOCK_ONFAULT) == 0 && munlock(place, page) == 0);
    FAILS(mlock2(place, page, 0x7000), EINVAL);
    FAILS(mlockall(0), EINVAL);
    CHECK(munlockall() == 0);
    CHECK(munmap(place, 8 * page) == 0);

    char *heap = sbrk(0);
    CHECK(sbrk(3 * page) == heap && sbrk(0) == heap + 3 * page);
    heap[3 * page - 1] = 5;
    CHECK(brk(heap + page) == 0 && sbrk(0) == heap + page);
    FAILS(brk((void *)-4096L), ENOMEM);
    CHECK(sbrk(0) == heap + page);
    FAILS(sbrk(1L << 50), ENOMEM);

    at = (char *)syscall(SYS_mmap, NULL, page, rw, anonymous, -1, 0);
    CHECK((long)at > 0);
    CHECK(syscall(SYS_mprotect, at, page, PROT_READ) == 0);
    FAILS(syscall(SYS_munmap, at + 1, page), EINVAL);
    CHECK(syscall(SYS_munmap, at, page) == 0);
    FAILS(syscall(SYS_read, -1, at, 1), EBADF);
    FAILS(syscall(99999), ENOSYS);
    CHECK(syscall(SYS_getpid) == getpid());
    // Six arguments, the last on the stack.
    CHECK(syscall(SYS_copy_file_range, -1, NULL, -1, NULL, 1, 12345) == -1);
    CHECK(errno == EBADF || errno == EINVAL);

    FAILS(execve("/no/such/program", (char *[]){"x", NULL}, environ), ENOENT);
    FAILS(setsockopt(-1, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), EBADF);
    return 0;
}
