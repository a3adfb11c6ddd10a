// Is large for a while, then small, and then has a child that is as large: the swap file must have room for either, and not for both.
//
//   room MIB KEPT_MIB WHAT   Writes MIB, verifies, unmaps all but the last KEPT_MIB, prints a line and waits for one. Then WHAT, and verifies what it kept.
//     child    runs `room MIB`
//     again    writes MIB itself, and verifies
//     beside   the same; a child that was made before the line, and does nothing, lives on meanwhile
//   room MIB                 Writes MIB and verifies.
//
// Exit code 1: a wrong byte. 2: the child did not end well.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t word(size_t i) {
    return (i + (size_t)getpid()) * 0x9e3779b97f4a7c15ull ^ i >> 3;
}

static void verify(const uint64_t *words, size_t from, size_t end) {
    for (size_t i = from; i < end; i++)
        if (words[i] != word(i)) {
            printf("word %zu is wrong\n", i);
            exit(1);
        }
}

// Memory of so many words, written and verified.
static uint64_t *large(size_t words) {
    uint64_t *memory = mmap(NULL, words * sizeof *memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(3);
    for (size_t i = 0; i < words; i++) memory[i] = word(i);
    verify(memory, 0, words);
    return memory;
}

static void run_child(char **arguments) {
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", arguments[0], arguments[1], (char *)NULL);
        _exit(3);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) exit(2);
}

int main(int count, char **arguments) {
    if (count < 2) return 3;
    size_t bytes = (size_t)atol(arguments[1]) << 20, words = bytes / sizeof(uint64_t);
    uint64_t *memory = large(words);
    if (count < 4) return 0;
    size_t gone = bytes - ((size_t)atol(arguments[2]) << 20);
    munmap(memory, gone);
    int beside = !strcmp(arguments[3], "beside");
    pid_t idle = beside ? fork() : 0;
    // It does not outlive its parent, however that ends.
    if (beside && idle == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() != 1) pause();
        _exit(0);
    }
    puts("small");
    fflush(stdout);
    if (getchar() == EOF) return 3;
    if (!strcmp(arguments[3], "child"))
        run_child(arguments);
    else
        large(words);
    verify(memory, gone / sizeof *memory, words);
    if (beside && (idle < 0 || kill(idle, SIGKILL))) return 3;
    return 0;
}
