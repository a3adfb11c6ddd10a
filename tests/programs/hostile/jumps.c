// A handler of a timer jumps out of memory calls, which are never ended then.
//
// early: before paging began, and more often than hooks can be at work at once. while: after. cpus: calls about CPUs, after.
#include "hostile.h"
#include <sys/time.h>

static sigjmp_buf home;
static volatile sig_atomic_t inside, jumps;

static void leave(int number) {
    (void)number;
    if (!inside) return;
    jumps++;
    siglongjmp(home, 1);
}

static void set_timer(int every_us) {
    struct itimerval timer = {{0, every_us}, {0, every_us}};
    NEED(!setitimer(ITIMER_REAL, &timer, 0));
}

// Until so many calls were left. What they do changes no page that is looked at.
static void leave_calls(int times) {
    char *other = map(16 * PAGE);
    NEED(signal(SIGALRM, leave) != SIG_ERR);
    set_timer(200);
    time_t latest = time(0) + 20;
    while (jumps < times && time(0) < latest) {
        if (!sigsetjmp(home, 1)) {
            inside = 1;
            for (int i = 0; is("cpus") && i < 50; i++) {
                cpu_set_t cpus;
                NEED(!sched_getaffinity(0, sizeof cpus, &cpus));
                NEED(!sched_setaffinity(0, sizeof cpus, &cpus));
            }
            for (int i = 0; i < 50; i++) {
                madvise(other, PAGE, MADV_DONTNEED);
                mprotect(other + PAGE, PAGE, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE);
                mlock(other + 2 * PAGE, PAGE);
                munlock(other + 2 * PAGE, PAGE);
            }
        }
        inside = 0;
    }
    set_timer(0);
    NEED(jumps >= times);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    if (is("early")) leave_calls(200);
    arena(arguments);
    if (is("while") || is("cpus")) leave_calls(200);
    verify_all("afterwards");
    NEED(!munmap(at(100), 100 * PAGE));
    NEED(mmap(at(100), 100 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at(100));
    zeroed(100, 200);
    fork_and_verify();
    return done();
}
