// SIGSTOP while the kernel touches pages that are out: the process stops, all of it, and goes on when it is told to.
//
// read: one thread reads a file into pages. threads: three do. drop: pages are dropped while others are read into.
#include "hostile.h"

enum { STOPS = 8, LONGEST_S = 20 };
static volatile int *over;
static int zero;

static size_t draw(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state % pages;
}

// A thread keeps to the pages of its number, so that what they hold is known.
static void *work(void *argument) {
    size_t me = (size_t)argument;
    uint64_t state = 88172645463325252ull + me;
    while (!*over) {
        size_t i = draw(&state) / 4 * 4 + me;
        verify_at(at(i), i, generation[i], "before");
        if (is("drop") && i % 3 == 0) {
            NEED(!madvise(at(i), PAGE, MADV_DONTNEED));
            generation[i] = 0;
        } else {
            // The kernel writes zeroes, and may wait for the page within the call.
            NEED(pread(zero, at(i), PAGE, 0) == PAGE);
            generation[i] = 0;
        }
        i = draw(&state) / 4 * 4 + me;
        put(i);
    }
    return 0;
}

static int child(void) {
    pthread_t threads[3];
    for (size_t n = 1; n < 4 && !is("read"); n++) NEED(!pthread_create(&threads[n - 1], 0, work, (void *)n));
    work(0);
    for (size_t n = 1; n < 4 && !is("read"); n++) NEED(!pthread_join(threads[n - 1], 0));
    verify_all("child");
    return 0;
}

static void stop(pid_t pid) {
    int status;
    NEED(!kill(pid, SIGSTOP));
    for (int n = 0; waitpid(pid, &status, WUNTRACED | WNOHANG) != pid; n++) {
        if (n > LONGEST_S * 1000) end(2, "not stopped in %d s", LONGEST_S);
        usleep(1000);
    }
    NEED(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    NEED(!kill(pid, SIGCONT));
    usleep(20000);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    zero = open("/dev/zero", O_RDONLY);
    over = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(zero >= 0 && over != MAP_FAILED);
    arena(arguments);
    pid_t pid = fork();
    NEED(pid >= 0);
    if (!pid) _exit(child());
    usleep(200000);
    for (int n = 0; n < STOPS; n++) stop(pid);
    *over = 1;
    NEED(!await(pid));
    return done();
}
