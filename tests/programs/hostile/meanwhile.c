// What one thread does to mappings while another forks or moves some.
//
// over-file: shared memory is mapped over pages that are paged, again and again, while another thread forks; each child has
// it. over-raw: the same with private memory, by a call that no library sees. chase: a bare mremap moves memory away, and at once
// another thread moves other memory to where it was. several: what is more than one mapping is moved, while another thread
// makes descriptors of the lowest numbers that are free.
#include "hostile.h"

enum { PART = 64, FORKS = 200, MOVES = 60 };

static char *volatile lies;
static volatile uint64_t number, forks;
static volatile int over;

static void lay_over(char *where) {
    int flags = MAP_ANONYMOUS | MAP_FIXED, prot = PROT_READ | PROT_WRITE;
    if (is("over-raw")) NEED(raw(SYS_mmap, (long)where, PART * PAGE, prot, flags | MAP_PRIVATE, -1, 0) == (long)where);
    else NEED(mmap(where, PART * PAGE, prot, flags | MAP_SHARED, -1, 0) == where);
}

// Private memory comes back there, is written and leaves.
static void take_back(size_t from) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    NEED(mmap(at(from), PART * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == at(from));
    for (size_t i = from; i < from + PART; i++) put(i);
}

static void *lay(void *unused) {
    (void)unused;
    for (uint64_t n = 1; !over; n++) {
        size_t from = n % (pages / 4 / PART) * PART;
        lay_over(at(from));
        for (size_t i = 0; i < PART; i++) *(uint64_t *)at(from + i) = n;
        number = n, lies = at(from);
        for (uint64_t since = forks; forks < since + 2 && !over;) usleep(50);
        lies = 0;
        take_back(from);
    }
    return 0;
}

static void fork_meanwhile(void) {
    pthread_t thread;
    NEED(!pthread_create(&thread, 0, lay, 0));
    for (int n = 0; n < FORKS; n++, forks++) {
        pid_t pid = fork();
        if (!pid) {
            for (size_t i = 0; lies && i < PART; i++)
                if (*(uint64_t *)(lies + i * PAGE) != number) end(1, "child: page %zu of what was laid over", i);
            verify(pages - 4 * PART, pages, "child");
            _exit(0);
        }
        NEED(pid > 0);
        need_right(pid);
    }
    over = 1;
    NEED(!pthread_join(thread, 0));
}

static char *free_at;
static volatile int ready, leaves;

// Other memory goes where memory just left.
static void *follow(void *unused) {
    size_t bytes = PART * PAGE;
    (void)unused;
    for (int n = 0; n < MOVES; n++) {
        char *other = map(PART);
        for (size_t i = 0; i < PART; i++) fill_at(other + i * PAGE, i, 200);
        ready = n + 1;
        while (leaves <= n) usleep(50);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        for (int tries = 1; raw(SYS_mmap, (long)free_at, bytes, PROT_NONE, flags, -1, 0) < 0; tries++)
            if (tries % 1000 == 0) usleep(50);
        NEED(mremap(other, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, free_at) == free_at);
        for (size_t i = 0; i < PART; i++) verify_at(free_at + i * PAGE, i, 200, "moved to where other memory was");
        NEED(!munmap(free_at, bytes));
        over = n + 1;
    }
    return 0;
}

static void move_meanwhile(void) {
    pthread_t thread;
    size_t bytes = PART * PAGE;
    NEED(!pthread_create(&thread, 0, follow, 0));
    for (int n = 0; n < MOVES; n++) {
        char *from = map(PART), *to = map(PART);
        for (size_t i = 0; i < PART; i++) fill_at(from + i * PAGE, i, 100);
        // It is paged out, as a rule.
        verify(n * PART % (pages - 9 * PART), n * PART % (pages - 9 * PART) + 9 * PART, "beside");
        // Nothing else is mapped once it is gone.
        while (ready <= n) usleep(50);
        free_at = from, leaves = n + 1;
        NEED(raw(SYS_mremap, (long)from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (long)to, 0) == (long)to);
        for (size_t i = 0; i < PART; i++) verify_at(to + i * PAGE, i, 100, "moved away");
        while (over <= n) usleep(50);
        NEED(!munmap(to, bytes));
    }
    NEED(!pthread_join(thread, 0));
}

// Descriptors that come and go under the numbers which the next open would get.
static void *duplicate(void *unused) {
    (void)unused;
    while (!over)
        for (int number = 3; number < 8; number++)
            if (fcntl(number, F_GETFD) < 0) NEED(dup2(1, number) == number && !close(number));
    return 0;
}

static void move_several(void) {
    pthread_t thread;
    size_t bytes = PART * PAGE;
    char *to = map(3 * PART);
    NEED(!pthread_create(&thread, 0, duplicate, 0));
    for (int n = 0; n < MOVES; n++) {
        char *from = map(3 * PART);
        // The middle comes last: the kernel cannot join it with both sides.
        NEED(!munmap(from + bytes, bytes));
        for (size_t i = 0; i < 3 * PART; i++)
            if (i / PART != 1) fill_at(from + i * PAGE, i, 50);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        NEED(mmap(from + bytes, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == from + bytes);
        for (size_t i = PART; i < 2 * PART; i++) fill_at(from + i * PAGE, i, 50);
        verify(n * PART % (pages - 9 * PART), n * PART % (pages - 9 * PART) + 9 * PART, "beside");
        if (mremap(from, 3 * bytes, 3 * bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) missing("mremap of several mappings");
        for (size_t i = 0; i < 3 * PART; i++) verify_at(to + i * PAGE, i, 50, "several, moved");
    }
    over = 1;
    NEED(!pthread_join(thread, 0));
}

int main(int count, char **arguments) {
    begin(count, arguments);
    arena(arguments);
    if (is("chase")) move_meanwhile();
    else if (is("several")) move_several();
    else fork_meanwhile();
    return done();
}
