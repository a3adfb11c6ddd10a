// Fills memory, verifies it, and then ends in one of the ways programs end.
//
//   fill MIB [exit CODE | signal NUMBER | exec | fork | leave | daemon | poisoned]
//
// exec: does it all again in a new image. fork: parent and child verify at once, twice. leave: ends before its child, which verifies and says so.
// daemon: its child ends before the child's own child, which verifies once this one has written all of its memory anew.
// poisoned: counts pages that cannot be read (SIGBUS); none may be wrong. Exit code 1: a wrong byte.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static char *memory;
static size_t pages;
static sigjmp_buf back;

static void fill(void) {
    for (size_t i = 0; i < pages; i++)
        for (size_t k = 0; k < PAGE; k += 8) *(uint64_t *)(memory + i * PAGE + k) = i * 0x9e3779b97f4a7c15ull + k + 1;
}

static size_t wrong_words(size_t page) {
    size_t wrong = 0;
    for (size_t k = 0; k < PAGE; k += 8)
        wrong += *(volatile uint64_t *)(memory + page * PAGE + k) != page * 0x9e3779b97f4a7c15ull + k + 1;
    return wrong;
}

static size_t verify(void) {
    size_t wrong = 0;
    for (size_t i = 0; i < pages; i++) wrong += wrong_words(i) != 0;
    return wrong;
}

static void jump(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static int poisoned(void) {
    static volatile size_t lost, wrong, i;
    struct sigaction action = {.sa_handler = jump};
    sigaction(SIGBUS, &action, 0);
    for (i = 0; i < pages; i++) {
        if (sigsetjmp(back, 1)) lost++;
        else wrong += wrong_words(i) != 0;
    }
    printf("%zu pages lost, %zu wrong\n", (size_t)lost, (size_t)wrong);
    return wrong ? 1 : 0;
}

// The grandchild sees what was there when it was forked, whatever its grandparent does since.
static int daemon_stays(void) {
    int go[2], verdict[2], status = 0;
    char byte = 0;
    if (pipe(go) || pipe(verdict)) return 2;
    pid_t child = fork();
    if (!child) {
        if (fork()) _exit(0);
        if (read(go[0], &byte, 1) != 1) _exit(2);
        byte = verify() ? 'n' : 'y';
        _exit(write(verdict[1], &byte, 1) != 1);
    }
    if (waitpid(child, &status, 0) != child || status) return 2;
    close(verdict[1]);
    for (int round = 1; round < 5; round++) {
        usleep(300000); // Longer than a pager takes to see that a child is gone.
        for (size_t i = 0; i < pages; i++) memset(memory + i * PAGE, round, PAGE);
    }
    if (write(go[1], &byte, 1) != 1 || read(verdict[0], &byte, 1) != 1 || byte != 'y') return 1;
    printf("the grandchild was right\n");
    return 0;
}

int main(int argc, char **argv) {
    const char *how = argc > 2 ? argv[2] : "exit";
    if (argc < 2) return 2;
    pages = atol(argv[1]) * 256;
    memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    fill();
    if (!strcmp(how, "poisoned")) return poisoned();
    if (verify()) return 1;
    if (!strcmp(how, "exec")) {
        char *const again[] = {argv[0], argv[1], 0};
        execv("/proc/self/exe", again);
        return 2;
    }
    if (!strcmp(how, "fork")) {
        int status = 0;
        pid_t child = fork();
        for (int round = 0; round < 2; round++)
            if (verify()) _exit(1);
        if (!child) _exit(0);
        if (waitpid(child, &status, 0) != child || status) return 1;
        printf("both were right\n");
        return 0;
    }
    if (!strcmp(how, "leave")) {
        if (fork()) _exit(0);
        for (int round = 0; round < 2; round++)
            if (verify()) _exit(1);
        printf("the child was right\n");
        return 0;
    }
    if (!strcmp(how, "daemon")) return daemon_stays();
    if (!strcmp(how, "signal")) raise(argc > 3 ? atoi(argv[3]) : SIGTERM);
    printf("%zu pages were right\n", pages);
    return argc > 3 ? atoi(argv[3]) : 0;
}
