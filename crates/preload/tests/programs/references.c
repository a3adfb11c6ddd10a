// Pages that the kernel would read later through a plain reference.
#include "check.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif

int main(void) {
    int ends[2], on = 1, off = 0;
    CHECK(pipe(ends) == 0);
    int room = fcntl(ends[1], F_GETPIPE_SZ);
    char *buffer = aligned_alloc(4096, 4 * room), *copy = malloc(4 * room);
    memset(buffer, 'a', 4 * room);
    struct iovec parts[2] = {{buffer, 4096}, {buffer + 8192, 4096}};
    CHECK(vmsplice(ends[1], parts, 2, 0) == 8192);
    memset(buffer, 'b', 4 * room);
    CHECK(read(ends[0], copy, 8192) == 8192);
    for (int i = 0; i < 8192; i++)
        CHECK(copy[i] == 'a');
    // More than fits: what fits, without waiting; then nothing.
    struct iovec large = {buffer, 4 * room};
    long written = vmsplice(ends[1], &large, 1, 0);
    CHECK(written > 0 && written <= room);
    errno = 0;
    CHECK(vmsplice(ends[1], &large, 1, SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
    // Out of the pipe.
    struct iovec out = {copy, written};
    long got = 0;
    for (long n; got < written; got += n) {
        out = (struct iovec){copy + got, written - got};
        CHECK((n = vmsplice(ends[0], &out, 1, 0)) > 0);
    }
    CHECK(memcmp(copy, buffer, written) == 0);
    // A full pipe that somebody empties.
    CHECK(vmsplice(ends[1], &large, 1, 0) > 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        usleep(20000);
        while (read(ends[0], copy, 4096) > 0)
            ;
        _exit(0);
    }
    CHECK(vmsplice(ends[1], &large, 1, 0) > 0);
    close(ends[1]);
    CHECK(exit_code_of(child) == 0);
    CHECK(vmsplice(-1, &large, 1, 0) == -1 && errno == EBADF);

    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(s >= 0);
    errno = 0;
    CHECK(setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == -1 && errno == EOPNOTSUPP);
    CHECK(syscall(SYS_setsockopt, s, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == -1);
    CHECK(setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &off, sizeof off) == 0);
    int other = 2;
    CHECK(setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &other, sizeof other) == -1 && errno == EINVAL);
    CHECK(setsockopt(999, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == -1 && errno == EBADF);
    CHECK(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    return 0;
}
