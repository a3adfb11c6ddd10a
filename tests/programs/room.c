// Is large for a while, then small, and then has a child that is as large: the swap file must have room for either, and not for both.
//
//   room MIB KEPT_MIB   Writes MIB, verifies, unmaps all but the last KEPT_MIB, prints a line and waits for one. Then runs `room MIB`, and verifies what it kept.
//   room MIB            Writes MIB and verifies.
//
// Exit code 1: a wrong byte. 2: the child did not end well.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t *memory;

static uint64_t word(size_t i) {
    return (i + (size_t)getpid()) * 0x9e3779b97f4a7c15ull ^ i >> 3;
}

static void verify(size_t from, size_t end) {
    for (size_t i = from; i < end; i++)
        if (memory[i] != word(i)) {
            printf("word %zu is wrong\n", i);
            exit(1);
        }
}

int main(int count, char **arguments) {
    if (count < 2) return 3;
    size_t bytes = (size_t)atol(arguments[1]) << 20, words = bytes / sizeof *memory;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    for (size_t i = 0; i < words; i++) memory[i] = word(i);
    verify(0, words);
    if (count < 3) return 0;
    size_t gone = bytes - ((size_t)atol(arguments[2]) << 20);
    munmap(memory, gone);
    puts("small");
    fflush(stdout);
    if (getchar() == EOF) return 3;
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", arguments[0], arguments[1], (char *)NULL);
        _exit(3);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 2;
    verify(gone / sizeof *memory, words);
    return 0;
}
