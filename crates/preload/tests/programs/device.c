// Reads with O_DIRECT into a buffer twice the limit, by every call there is, and looks at every byte.
// Exit code 77: the file system has no O_DIRECT.
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/uio.h>

enum { MIB = 1 << 20, BUFFER = 16 * MIB, FILE_BYTES = 8 * MIB, THREADS = 4, ROUNDS = 12 };

static const char *path;
static char *buffer;

// The word at `offset` of the file.
static uint64_t word(uint64_t offset) { return (offset + 1) * 0x9e3779b97f4a7c15; }

static void verify(const char *at, uint64_t offset, size_t len) {
    for (size_t i = 0; i < len; i += 8)
        if (*(const uint64_t *)(at + i) != word(offset + i)) {
            fprintf(stderr, "byte %zu of %zu read at %lu is wrong\n", i, len, offset);
            _exit(98);
        }
}

static ssize_t read_by(int how, int file, char *at, size_t len, off_t offset) {
    struct iovec parts[2] = {{at, len / 2}, {at + len / 2, len / 2}};
    switch (how) {
    case 0: CHECK(lseek(file, offset, SEEK_SET) == offset); return read(file, at, len);
    case 1: return pread(file, at, len, offset);
    case 2: CHECK(lseek(file, offset, SEEK_SET) == offset); return readv(file, parts, 2);
    case 3: return preadv(file, parts, 2, offset);
    case 4: return preadv2(file, parts, 2, offset, 0);
    default: return syscall(SYS_pread64, file, at, len, offset);
    }
}

// Each thread reads into its own part of the buffer and so pushes out the others'.
static void *reader(void *argument) {
    long me = (long)argument;
    const size_t part = BUFFER / THREADS, sizes[] = {8192, 65536, 1 * MIB, 4 * MIB};
    int file = open(path, O_RDONLY | O_DIRECT);
    CHECK(file >= 0);
    unsigned seed = me;
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = sizes[(round + me) % 4];
        char *at = buffer + me * part;
        for (size_t done = 0; done < part; done += len) {
            off_t offset = rand_r(&seed) % ((FILE_BYTES - len) / 4096 + 1) * 4096;
            // Pages that are about to leave, too.
            at[done] = 1;
            CHECK(read_by(rand_r(&seed) % 6, file, at + done, len, offset) == (ssize_t)len);
            verify(at + done, offset, len);
        }
    }
    close(file);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    path = arguments[1];
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    static char block[4096];
    for (uint64_t offset = 0; offset < FILE_BYTES; offset += sizeof block) {
        for (size_t i = 0; i < sizeof block; i += 8)
            *(uint64_t *)(block + i) = word(offset + i);
        CHECK(write(file, block, sizeof block) == sizeof block);
    }
    CHECK(fsync(file) == 0);
    close(file);
    file = open(path, O_RDONLY | O_DIRECT);
    if (file < 0 && errno == EINVAL)
        return 77;
    // Errors and ends of file are those of the kernel.
    CHECK(posix_memalign((void **)&buffer, 4096, BUFFER) == 0);
    memset(buffer, 0, BUFFER);
    CHECK(pread(file, buffer, 2 * MIB, FILE_BYTES - MIB) == MIB);
    verify(buffer, FILE_BYTES - MIB, MIB);
    CHECK(pread(file, buffer, 4096, FILE_BYTES) == 0);
    CHECK(pread(file, (void *)8, 4096, 0) == -1 && (errno == EFAULT || errno == EINVAL));
    struct iovec none = {buffer, 0};
    CHECK(readv(file, &none, 1) == 0);
    CHECK(readv(file, &none, -1) == -1 && errno == EINVAL);
    struct iovec *gone = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(readv(file, gone, 1) == -1 && errno == EFAULT);
    close(file);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, reader, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
