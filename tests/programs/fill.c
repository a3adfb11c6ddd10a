// Fills memory, verifies it, and then ends in one of the ways programs end.
//
//   fill MIB [exit CODE | signal NUMBER | exec | fork | leave | daemon | thread | poisoned]
//
// thread: another thread does it, after the first one has ended.
// exec: does it all again in a new image. fork: parent and child verify at once, twice. leave: ends before its child, which verifies and says so.
// daemon: its child ends before the child's own child, which verifies once this one has written all of its memory anew.
// poisoned: counts pages that cannot be read (SIGBUS); none may be wrong. Exit code 1: a wrong byte. Ended by SIGILL: another page was lost.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096 };

static char *memory;
static size_t pages;

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

// From here on every page that left is lost, the loader's and libc's own too. Which of them left depends on the layout of the
// process, so nothing below needs any: it uses the stack, this program's variables and registers, and no function of a library.

// What a word holds, or that it is lost: the registers in which the ABI returns two words.
struct loaded {
    uint64_t value, lost;
};
struct loaded load(const char *from) __attribute__((visibility("hidden")));
extern const char load_word[] __attribute__((visibility("hidden")));
extern const char load_end[] __attribute__((visibility("hidden")));
__asm__(".text\n"
        "load: xor %edx, %edx\n"
        "load_word: mov (%rdi), %rax\n"
        "load_end: ret\n");

static void skip_load(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number, (void)info;
    if (registers[REG_RIP] != (greg_t)load_word) __builtin_trap();
    registers[REG_RIP] = (greg_t)load_end;
    registers[REG_RDX] = 1;
}

static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

// Writes `number` and then `text`, up to its NUL, to where `to` points; returns the end.
static char *append(char *to, size_t number, const char *text) {
    size_t unit = 1;
    while (number / unit >= 10) unit *= 10;
    for (; unit; unit /= 10) *to++ = '0' + number / unit % 10;
    while (*text) *to++ = *text++;
    return to;
}

static void count_poisoned(void) {
    size_t lost = 0, wrong = 0;
    char line[128], *end;
    for (size_t i = 0; i < pages; i++) {
        size_t gone = 0, differ = 0;
        for (size_t k = 0; k < PAGE && !gone; k += 8) {
            struct loaded word = load(memory + i * PAGE + k);
            gone = word.lost;
            differ += !gone && word.value != i * 0x9e3779b97f4a7c15ull + k + 1;
        }
        lost += gone;
        wrong += differ != 0;
    }
    end = append(append(line, lost, " pages lost, "), wrong, " wrong\n");
    long written = call(SYS_write, 1, (long)line, end - line);
    call(SYS_exit_group, wrong || written != end - line, 0, 0);
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

static void *outlive(void *first) {
    pthread_join(*(pthread_t *)first, 0);
    fill();
    if (verify()) exit(1);
    printf("%zu pages were right\n", pages);
    exit(0);
}

int main(int argc, char **argv) {
    const char *how = argc > 2 ? argv[2] : "exit";
    if (argc < 2) return 2;
    pages = atol(argv[1]) * 256;
    memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 2;
    if (!strcmp(how, "poisoned")) {
        struct sigaction action = {.sa_sigaction = skip_load, .sa_flags = SA_SIGINFO};
        sigaction(SIGBUS, &action, 0);
        fill();
        count_poisoned();
    }
    if (!strcmp(how, "thread")) {
        static pthread_t first, other;
        first = pthread_self();
        if (pthread_create(&other, 0, outlive, &first)) return 2;
        pthread_exit(0);
    }
    fill();
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
