// Memory by /dev/zero is as without the shim, and is part of the limit: of twice 32 MiB not more than the limit is in RAM.
#include "check.h"

#include <fcntl.h>
#include <stdint.h>

enum { PAGE = 4096, PAGES = 8192, RW = PROT_READ | PROT_WRITE };

static void fill(char *base, uint64_t tag) {
    for (size_t i = 0; i < PAGES; i++) *(uint64_t *)(base + i * PAGE) = tag + i;
}

static void verify(const char *base, uint64_t tag) {
    for (size_t i = 0; i < PAGES; i++) CHECK(*(const uint64_t *)(base + i * PAGE) == tag + i);
}

// Of this process, in RAM and of no file.
static size_t anonymous_bytes(void) {
    size_t total, resident, of_files;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%zu %zu %zu", &total, &resident, &of_files) == 3);
    fclose(statm);
    return (resident - of_files) * PAGE;
}

static void fails(int flags, int prot, int file, int error) {
    errno = 0;
    CHECK(mmap(0, PAGE, prot, flags, file, 0) == MAP_FAILED && errno == error);
}

int main(void) {
    int both = open("/dev/zero", O_RDWR), read_only = open("/dev/zero", O_RDONLY), write_only = open("/dev/zero", O_WRONLY);
    CHECK(both >= 0 && read_only >= 0 && write_only >= 0);
    size_t bytes = (size_t)PAGES * PAGE;
    char *first = mmap(0, bytes, RW, MAP_PRIVATE, both, 0);
    char *second = (char *)syscall(SYS_mmap, 0, bytes, RW, MAP_PRIVATE, read_only, PAGE);
    CHECK(first != MAP_FAILED && (long)second > 0);
    fill(first, 1);
    fill(second, 1 << 20);
    for (int round = 0; round < 2; round++) verify(first, 1), verify(second, 1 << 20);
    size_t in_ram = anonymous_bytes();
    if (in_ram > 16 << 20) fprintf(stderr, "%zu bytes are in RAM\n", in_ram), _exit(98);
    pid_t child = fork();
    if (!child) {
        verify(first, 1);
        fill(first, 2);
        verify(first, 2);
        _exit(0);
    }
    CHECK(exit_code_of(child) == 0);
    verify(first, 1);
    // A second mapping over the first, and what is shared with children.
    CHECK(mmap(first, bytes / 2, RW, MAP_PRIVATE | MAP_FIXED, both, 0) == first);
    for (size_t i = 0; i < PAGES / 2; i++) CHECK(first[i * PAGE] == 0);
    CHECK(*(uint64_t *)(first + bytes / 2) == 1 + PAGES / 2);
    char *shared = mmap(0, PAGE, RW, MAP_SHARED, both, 0);
    CHECK(shared != MAP_FAILED);
    child = fork();
    if (!child) shared[0] = 7, _exit(0);
    CHECK(exit_code_of(child) == 0 && shared[0] == 7);
    // What is not allowed is not allowed.
    fails(MAP_PRIVATE, RW, write_only, EACCES);
    fails(MAP_SHARED, RW, read_only, EACCES);
    errno = 0;
    CHECK(mmap(0, PAGE, RW, MAP_PRIVATE, both, 5) == MAP_FAILED && errno == EINVAL);
    int path = open("/dev/zero", O_PATH);
    fails(MAP_PRIVATE, RW, path, EBADF);
    return 0;
}
