// Shared anonymous memory under a limit, verified byte by byte against a model in private memory.
//
//   shared MIB WHAT [SEED]
//
// WHAT: fill       written and read in order, and at random
//       hold       the same, then held for a second, so that whoever looks from outside now and then sees all of it
//       threads    four threads, each with words of its own in every page
//       advice     madvise(2), munmap(2), mprotect(2), mremap(2), mlock(2), at random
//       fork       written, then read and written by a child and this process in turn
//       forkearly  the same, forked before anything is touched
//       alias      mapped a second time by mremap(2), written by either mapping
//       cut        parts of it unmapped, by munmap(2), mremap(2) and mmap(2), and mapped again by mremap(2), as they were, or refused (ENOMEM); with a child between
//       remap      mapped in another order by remap_file_pages(2)
//       partly     advice that is refused, or refused for a part: over the end of the address space, over a hole, over a locked page; and by process_madvise(2)
//       direct     read into from a file by O_DIRECT while the limit is short
//       rawremove, rawdontneed, rawalias   madvise(2) or mremap(2) by a bare instruction, of memory of which a part is out: the process is to end
//       rawfork    a child by a bare instruction: it is to end by SIGSEGV, and this process's memory is to be whole
// Prints "ok", and ends with 1 at the first wrong byte.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, THREADS = 4 };

static char *memory;
static size_t pages;
// What was last written to each page; 0: nothing, it is zeroes.
static uint32_t *version;
static uint64_t state = 1;

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void fail(const char *what, size_t page) {
    fprintf(stderr, "wrong: %s, page %zu\n", what, page);
    _exit(1);
}

static void need(int holds, const char *what) {
    if (!holds) perror(what), _exit(2);
}

static uint64_t word(size_t page, size_t k, uint32_t v) { return v ? (page * 0x9e3779b97f4a7c15ull ^ (uint64_t)v << 40) + k + 1 : 0; }

static void write_page(char *at, size_t page, uint32_t v) {
    for (size_t k = 0; k < WORDS; k++) ((volatile uint64_t *)(at + page * PAGE))[k] = word(page, k, v);
}

static void check_page(const char *at, size_t page, uint32_t v, const char *what) {
    for (size_t k = 0; k < WORDS; k++)
        if (((const volatile uint64_t *)(at + page * PAGE))[k] != word(page, k, v)) fail(what, page);
}

static void check_all(const char *what) {
    for (size_t i = 0; i < pages; i++) check_page(memory, i, version[i], what);
}

static void *map_shared(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(at != MAP_FAILED, "mmap");
    return at;
}

static void fill_all(uint32_t v) {
    for (size_t i = 0; i < pages; i++) write_page(memory, i, version[i] = v);
}

static void at_random(size_t steps) {
    for (size_t n = 0; n < steps; n++) {
        size_t i = draw(&state) % pages;
        check_page(memory, i, version[i], "at random");
        if (draw(&state) % 3 == 0) write_page(memory, i, ++version[i]);
    }
}

static void fill(void) {
    check_all("before");
    fill_all(1);
    check_all("in order");
    at_random(pages * 2);
    check_all("after");
}

// Each thread owns every THREADS-th word of every page.
static void *lane(void *argument) {
    size_t me = (size_t)argument;
    uint64_t mine = 0x1234567 + me;
    uint32_t *last = calloc(pages, sizeof *last);
    for (size_t n = 0; n < pages; n++) {
        size_t i = draw(&mine) % pages;
        volatile uint64_t *at = (volatile uint64_t *)(memory + i * PAGE);
        for (size_t k = me; k < WORDS; k += THREADS)
            if (at[k] != word(i, k, last[i])) fail("a thread's word", i);
        if (draw(&mine) % 2) {
            last[i]++;
            for (size_t k = me; k < WORDS; k += THREADS) at[k] = word(i, k, last[i]);
        }
    }
    for (size_t i = 0; i < pages; i++)
        for (size_t k = me; k < WORDS; k += THREADS)
            if (((volatile uint64_t *)(memory + i * PAGE))[k] != word(i, k, last[i])) fail("a thread's word at the end", i);
    free(last);
    return NULL;
}

static void threads(void) {
    pthread_t all[THREADS];
    for (size_t n = 0; n < THREADS; n++) need(!pthread_create(&all[n], NULL, lane, (void *)n), "thread");
    for (size_t n = 0; n < THREADS; n++) pthread_join(all[n], NULL);
}

static void advise(size_t i, size_t count, int advice) {
    if (madvise(memory + i * PAGE, count * PAGE, advice)) perror("madvise"), _exit(2);
}

static void advice(void) {
    fill_all(1);
    for (size_t n = 0; n < 1200; n++) {
        size_t i = draw(&state) % pages, count = 1 + draw(&state) % 64;
        if (i + count > pages) count = pages - i;
        char *at = memory + i * PAGE;
        switch (draw(&state) % 8) {
        case 0:
            advise(i, count, MADV_DONTNEED);
            break;
        case 1:
            advise(i, count, MADV_REMOVE);
            memset(version + i, 0, count * sizeof *version);
            break;
        case 2:
            need(!mprotect(at, count * PAGE, PROT_READ), "mprotect");
            for (size_t k = 0; k < count; k++) check_page(memory, i + k, version[i + k], "read-only");
            need(!mprotect(at, count * PAGE, PROT_READ | PROT_WRITE), "mprotect");
            break;
        case 3: {  // Away and back again, as mremap(2) takes one mapping at a time.
            char *away = mmap(NULL, count * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (mremap(at, count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away) == MAP_FAILED) break;
            for (size_t k = 0; k < count; k += 3) check_page(away - i * PAGE, i + k, version[i + k], "moved");
            for (size_t k = 0; k < count; k += 2) write_page(away - i * PAGE, i + k, ++version[i + k]);
            need(mremap(away, count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at, "mremap back");
            break;
        }
        case 4:
            if (mlock(at, PAGE)) break;
            check_page(memory, i, version[i], "locked");
            munlock(at, PAGE);
            break;
        case 5:
            advise(i, count, MADV_WILLNEED);
            break;
        default:
            for (size_t k = 0; k < count; k++) write_page(memory, i + k, ++version[i + k]);
        }
        at_random(20);
    }
    check_all("after advice");
    // The end of it goes; what was there is nobody's.
    size_t half = pages / 2;
    need(!munmap(memory + half * PAGE, (pages - half) * PAGE), "munmap");
    for (size_t i = 0; i < half; i++) check_page(memory, i, version[i], "what is left");
}

static void in_turn(void) {
    int down[2], up[2];
    char byte = 0;
    need(!pipe(down) && !pipe(up), "pipe");
    pid_t child = fork();
    need(child >= 0, "fork");
    for (uint32_t turn = 2; turn < 6; turn++) {
        int mine = (turn % 2 == 0) == (child == 0);
        if (mine) {
            for (size_t i = 0; i < pages; i++) check_page(memory, i, version[i], "the other's");
            for (size_t i = 0; i < pages; i++) write_page(memory, i, turn);
            need(write(child ? down[1] : up[1], &byte, 1) == 1, "write");
        } else {
            need(read(child ? up[0] : down[0], &byte, 1) == 1, "read");
        }
        for (size_t i = 0; i < pages; i++) version[i] = turn;
    }
    check_all("at the end");
    if (!child) _exit(0);
    int status;
    waitpid(child, &status, 0);
    if (status) _exit(3);
}

static void forked(int early) {
    if (!early) fill_all(1), at_random(pages);
    in_turn();
    // What is mapped from now on is paged again.
    memory = map_shared(pages * PAGE);
    memset(version, 0, pages * sizeof *version);
    fill();
}

static void alias(void) {
    fill_all(1);
    char *other = mremap(memory, 0, pages * PAGE, MREMAP_MAYMOVE);
    need(other != MAP_FAILED, "mremap");
    for (size_t n = 0; n < pages * 3; n++) {
        size_t i = draw(&state) % pages;
        char *one = n & 1 ? memory : other, *two = n & 1 ? other : memory;
        write_page(one, i, ++version[i]);
        check_page(two, i, version[i], "the other mapping");
    }
    check_all("one mapping");
    need(!munmap(memory, pages * PAGE), "munmap");
    memory = other;
    check_all("the other mapping alone");
}

// The kernel has what was cut off, as long as the rest is mapped.
static void cut(void) {
    for (int way = 0; way < 6; way++) {
        fill_all(1 + way);
        at_random(pages);
        size_t gone = pages / 3, stays = pages - gone;
        char *tail = memory + stays * PAGE;
        if (way % 3 == 0) need(!munmap(tail, gone * PAGE), "munmap");
        else if (way % 3 == 1) need(mremap(memory, pages * PAGE, stays * PAGE, 0) == memory, "mremap to less");
        else need(mmap(tail, gone * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == tail, "mmap over it");
        for (size_t i = 0; i < stays; i += 7) check_page(memory, i, version[i], "what stays");
        if (way >= 3) {
            pid_t child = fork();
            if (child == 0) {
                for (size_t i = 0; i < stays; i += 5) check_page(memory, i, version[i], "what stays, in the child");
                char *grown = mremap(memory, stays * PAGE, pages * PAGE, MREMAP_MAYMOVE);
                need(grown != MAP_FAILED || errno == ENOMEM, "mremap to more in the child");
                for (size_t i = 0; grown != MAP_FAILED && i < pages; i++) check_page(grown, i, version[i], "all of it, in the child");
                _exit(0);
            }
            int status;
            need(waitpid(child, &status, 0) == child && status == 0, "the child");
        }
        char *again = mremap(memory, stays * PAGE, pages * PAGE, MREMAP_MAYMOVE);
        need(again != MAP_FAILED || errno == ENOMEM, "mremap to more");
        if (again != MAP_FAILED) memory = again, check_all("all of it again");
        else for (size_t i = 0; i < stays; i++) check_page(memory, i, version[i], "what stays");
        need(!munmap(memory, (again == MAP_FAILED ? stays : pages) * PAGE), "munmap of all");
        memory = map_shared(pages * PAGE);
        memset(version, 0, pages * sizeof *version);
    }
}

static void remap(void) {
    fill_all(1);
    size_t half = pages / 2;
    need(!remap_file_pages(memory, half * PAGE, 0, half, 0), "remap_file_pages");
    for (size_t i = 0; i < half; i++) check_page(memory - half * PAGE, half + i, version[half + i], "the second half, twice");
    for (size_t i = half; i < pages; i++) write_page(memory, i, ++version[i]);
    for (size_t i = 0; i < half; i++) check_page(memory - half * PAGE, half + i, version[half + i], "written in the other place");
}

static void direct(void) {
    char path[] = "./directXXXXXX";
    int file = mkstemp(path);
    need(file >= 0, "mkstemp");
    size_t count = 256;
    char *page = aligned_alloc(PAGE, PAGE);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < WORDS; k++) ((uint64_t *)page)[k] = word(i, k, 77);
        need(write(file, page, PAGE) == PAGE, "write");
    }
    close(file);
    file = open(path, O_RDONLY | O_DIRECT);
    unlink(path);
    if (file < 0) {
        puts("no O_DIRECT here");
        return;
    }
    fill_all(1);
    for (size_t n = 0; n < 400; n++) {
        size_t from = draw(&state) % (count - 16), many = 1 + draw(&state) % 16, to = draw(&state) % (pages - 16);
        need(pread(file, memory + to * PAGE, many * PAGE, from * PAGE) == (ssize_t)(many * PAGE), "pread");
        for (size_t k = 0; k < many; k++) {
            for (size_t w = 0; w < WORDS; w++)
                if (((volatile uint64_t *)(memory + (to + k) * PAGE))[w] != word(from + k, w, 77)) fail("what was read", to + k);
            write_page(memory, to + k, ++version[to + k]);
        }
        at_random(100);
    }
    check_all("after reads");
}

static long bare(long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return result;
}

// Returns if nothing noticed: then what is there has to be right.
static void raw(const char *what) {
    fill_all(1);
    if (!strcmp(what, "rawremove")) {
        need(!bare(SYS_madvise, (long)memory, (long)(pages * PAGE), MADV_REMOVE, 0), "madvise");
        memset(version, 0, pages * sizeof *version);
    } else if (!strcmp(what, "rawdontneed")) {
        need(!bare(SYS_madvise, (long)memory, (long)(pages * PAGE), MADV_DONTNEED, 0), "madvise");
    } else {
        char *other = (char *)bare(SYS_mremap, (long)memory, 0, (long)(pages * PAGE), MREMAP_MAYMOVE);
        need((long)other > 0, "mremap");
        memory = other;
    }
    check_all("unseen");
}

static void emptied(size_t from, size_t count) { memset(version + from, 0, count * sizeof *version); }

static void partly(void) {
    const size_t half = pages / 2, some = pages / 8, hole = 10, locked = 40;
    const int rights = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    need(mmap(memory + half * PAGE, some * PAGE, rights, private, -1, 0) != MAP_FAILED, "mmap");
    fill_all(1);
    const size_t lengths[] = {-(size_t)1055, -(size_t)6953, -(size_t)PAGE, -(size_t)1};
    const int advices[] = {MADV_DONTNEED, MADV_FREE, MADV_REMOVE};
    for (size_t n = 0; n < 12; n++) {
        char *from = memory + (n % 2 ? half : 1) * PAGE;
        need(madvise(from, lengths[n % 4], advices[n % 3]) && errno == EINVAL, "madvise past the end");
    }
    check_all("refused");
    need(!munmap(memory + hole * PAGE, PAGE), "munmap");
    need(madvise(memory + 5 * PAGE, 10 * PAGE, MADV_REMOVE) && errno == ENOMEM, "madvise over a hole");
    need(mmap(memory + hole * PAGE, PAGE, rights, private, -1, 0) != MAP_FAILED, "mmap");
    emptied(5, 10);
    check_all("done but for the hole");
    need(!mlock(memory + locked * PAGE, PAGE), "mlock");
    need(madvise(memory + locked * PAGE, (half + some - locked) * PAGE, MADV_DONTNEED) && errno == EINVAL, "madvise over a locked page");
    check_all("refused for a locked page");
    need(!munlock(memory + locked * PAGE, PAGE), "munlock");
    struct iovec parts[2] = {{memory + 100 * PAGE, 7 * PAGE}, {memory + 200 * PAGE, 9 * PAGE}};
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    need(self >= 0, "pidfd_open");
    if (process_madvise(self, parts, 2, MADV_REMOVE, 0) == 16 * PAGE) emptied(100, 7), emptied(200, 9);
    else fputs("SKIPPED: process_madvise of itself (Linux 6.13)\n", stderr);
    check_all("emptied by process_madvise");
    at_random(pages);
    check_all("written");
}

static void raw_fork(void) {
    fill_all(1);
    long child = bare(SYS_clone, SIGCHLD, 0, 0, 0);
    need(child >= 0, "clone");
    if (!child) {
        volatile char byte = memory[0];
        (void)byte;
        bare(SYS_exit, 0, 0, 0, 0);
    }
    int status = 0;
    need(waitpid((pid_t)child, &status, 0) == child, "waitpid");
    if (!WIFSIGNALED(status)) fail("a child that nobody saw has the memory", 0);
    at_random(pages);
    check_all("after the child");
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    pages = (size_t)atol(argv[1]) * 256;
    if (argc > 3) state = (uint64_t)atol(argv[3]) * 0x9e3779b97f4a7c15ull | 1;
    const char *what = argv[2];
    version = calloc(pages, sizeof *version);
    memory = map_shared(pages * PAGE);
    if (!strcmp(what, "fill")) fill();
    else if (!strcmp(what, "hold")) fill(), sleep(1);
    else if (!strcmp(what, "threads")) threads();
    else if (!strcmp(what, "advice")) advice();
    else if (!strcmp(what, "fork")) forked(0);
    else if (!strcmp(what, "forkearly")) forked(1);
    else if (!strcmp(what, "alias")) alias();
    else if (!strcmp(what, "cut")) cut();
    else if (!strcmp(what, "remap")) remap();
    else if (!strcmp(what, "partly")) partly();
    else if (!strcmp(what, "direct")) direct();
    else if (!strcmp(what, "rawfork")) raw_fork();
    else if (!strncmp(what, "raw", 3)) raw(what);
    else return 2;
    puts("ok");
    return 0;
}
