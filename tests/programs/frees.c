// Frees memory by MADV_FREE, writes a part of it again, and has other memory take its place. A page that was written since is what was written, to
// the byte, be it what was there before. One that was not is as it was or zeroes, and once it was seen as zeroes it stays so.
//
//   frees MIB ROUNDS [THREADS]
//
// Each thread has its share of MIB MiB, and as much again for the memory that takes its place. Every other round a child made by fork looks too, and
// writes; then the memory moves (mremap). Prints how many pages were found as zeroes. Exit code 1: a wrong byte; 2: a call failed.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };
#define NEED(condition) ((condition) ? (void)0 : (perror(#condition), _exit(2)))

struct share {
    pthread_t thread;
    uint64_t random, *tags, zeroes;
    char *freed, *memory, *other;
    size_t pages;
    int rounds;
};
static pthread_mutex_t forking = PTHREAD_MUTEX_INITIALIZER;

static uint64_t below(struct share *s, uint64_t n) {
    s->random = s->random * 6364136223846793005ull + 1442695040888963407ull;
    return (s->random >> 33) % n;
}

static void fill(char *page, uint64_t tag) {
    for (size_t k = 0; k < WORDS; k++) ((volatile uint64_t *)page)[k] = tag ? tag + k * 0x9e3779b97f4a7c15ull : 0;
}

static int holds(const char *page, uint64_t tag) {
    for (size_t k = 0; k < WORDS; k++)
        if (((volatile uint64_t *)page)[k] != (tag ? tag + k * 0x9e3779b97f4a7c15ull : 0)) return 0;
    return 1;
}

// Of a page that was freed zeroes are looked for last: it may go while it is looked at.
static void verify(struct share *s, const char *when) {
    for (size_t i = 0; i < s->pages; i++) {
        char *page = s->memory + i * PAGE;
        if (holds(page, s->tags[i])) continue;
        if (!s->freed[i] || !holds(page, 0)) {
            fprintf(stderr, "frees: page %zu is neither what was written nor zeroes (freed: %d) %s\n", i, s->freed[i], when);
            _exit(1);
        }
        s->tags[i] = 0, s->zeroes++;
    }
}

static void free_some(struct share *s) {
    for (size_t i = 0; i < s->pages; i++) fill(s->memory + i * PAGE, s->tags[i] = below(s, 1ull << 31) << 8 | 1), s->freed[i] = 0;
    for (size_t i = 0; i < s->pages;) {
        size_t most = 1 + below(s, 200), count = most < s->pages - i ? most : s->pages - i;
        if (below(s, 3)) {
            NEED(!madvise(s->memory + i * PAGE, count * PAGE, MADV_FREE));
            memset(s->freed + i, 1, count);
        }
        i += count;
    }
}

static void write_again(struct share *s) {
    for (size_t i = 0; i < s->pages; i++) {
        uint64_t *page = (uint64_t *)(s->memory + i * PAGE);
        if (!s->freed[i]) continue;
        switch (below(s, 8)) {
        case 0: fill((char *)page, s->tags[i]), s->freed[i] = 0; break; // the same bytes
        case 1: fill((char *)page, s->tags[i] += 1 << 20), s->freed[i] = 0; break;
        case 2: // a write that changes nothing
            __atomic_fetch_or(page + below(s, WORDS), 0, __ATOMIC_SEQ_CST);
            if (!holds((char *)page, s->tags[i])) s->tags[i] = 0;
            s->freed[i] = 0;
        }
    }
}

static void press(struct share *s) {
    for (size_t i = 0; i < s->pages; i++) *(uint64_t *)(s->other + i * PAGE) = i + 1;
    for (size_t i = 0; i < s->pages; i++)
        if (*(volatile uint64_t *)(s->other + i * PAGE) != i + 1) fprintf(stderr, "frees: page %zu of the others is wrong\n", i), _exit(1);
}

static void fork_and_verify(struct share *s) {
    pthread_mutex_lock(&forking);
    pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        write_again(s), verify(s, "in a child"), press(s), verify(s, "in a child, later");
        _exit(0);
    }
    pthread_mutex_unlock(&forking);
    write_again(s), press(s), verify(s, "beside a child");
    int status;
    NEED(waitpid(child, &status, 0) == child);
    if (status) fprintf(stderr, "frees: the child ended with status %x\n", status), _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void move(struct share *s) {
    size_t bytes = s->pages * PAGE;
    char *to = mmap(0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(to != MAP_FAILED && mremap(s->memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    s->memory = to;
}

static void *work(void *argument) {
    struct share *s = argument;
    for (int round = 0; round < s->rounds; round++) {
        free_some(s);
        write_again(s);
        press(s);
        verify(s, "after others came");
        write_again(s);
        if (round % 2) fork_and_verify(s), move(s);
        press(s);
        verify(s, "at the end of a round");
    }
    return 0;
}

int main(int count, char **arguments) {
    NEED(count > 2);
    size_t threads = count > 3 ? strtoul(arguments[3], 0, 10) : 1, pages = strtoul(arguments[1], 0, 10) * 256 / threads;
    struct share *shares = calloc(threads, sizeof *shares);
    uint64_t zeroes = 0;
    for (size_t t = 0; t < threads; t++) {
        struct share *s = shares + t;
        *s = (struct share){.random = t + 1, .pages = pages, .rounds = atoi(arguments[2])};
        s->tags = calloc(pages, sizeof *s->tags), s->freed = calloc(pages, 1);
        s->memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        s->other = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(s->tags && s->freed && s->memory != MAP_FAILED && s->other != MAP_FAILED);
        NEED(!pthread_create(&s->thread, 0, work, s));
    }
    for (size_t t = 0; t < threads; t++) {
        NEED(!pthread_join(shares[t].thread, 0));
        zeroes += shares[t].zeroes;
    }
    printf("%llu pages were zeroes\n", (unsigned long long)zeroes);
}
