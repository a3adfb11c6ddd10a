// Calls that fail and have done a part, and ends that no exit_group makes.
//
// wipe: MADV_WIPEONFORK over a hole. fork: MADV_DONTFORK of no whole page. guard: MADV_GUARD_INSTALL over a locked page. guard-lock: over pages
// that an mlock locked which failed. protect: mprotect over a hole. exit, killed: a child whose only thread ends by exit(2), and by a filter of its own. splice: vmsplice of too many parts, of
// one that cannot be read, and into a full pipe. refused: arguments that the kernel refuses before it does anything.
#include "hostile.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { COUNT = 2000, HALF = COUNT / 2 };
static char *range;

static void refill(void) {
    for (size_t i = 0; i < COUNT; i++)
        if (i != HALF) fill_at(range + i * PAGE, i, 1);
    verify_all("beside");
}

static void verify_range(size_t from, size_t to, uint8_t g, const char *what) {
    for (size_t i = from; i < to; i++)
        if (i != HALF) verify_at(range + i * PAGE, i, g, what);
}

static void wiped(void) {
    NEED(!munmap(range + HALF * PAGE, PAGE));
    refill();
    REFUSED(madvise(range, COUNT * PAGE, MADV_WIPEONFORK), ENOMEM);
    pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        verify_range(0, COUNT, 0, "wiped");
        _exit(0);
    }
    NEED(!await(child));
    verify_range(0, COUNT, 1, "kept");
}

static int reads(const volatile char *byte) {
    if (sigsetjmp(back, 1)) return 0;
    (void)*byte;
    return 1;
}

static void guarded(void) {
    size_t first = HALF;
    if (is("guard-lock")) {
        first -= 10;
        NEED(!munmap(range + HALF * PAGE, PAGE));
        refill();
        REFUSED(mlock(range + first * PAGE, 20 * PAGE), ENOMEM);
        verify_all("beside, once more");
    } else {
        refill();
        NEED(!mlock(range + HALF * PAGE, PAGE));
    }
    int result = madvise(range, COUNT * PAGE, 102);
    if (result && errno == EINVAL && madvise(range, PAGE, 102)) end(77, "no MADV_GUARD_INSTALL");
    NEED(result == -1);
    // And where the first page is locked: nothing.
    REFUSED(madvise(range + first * PAGE, 5 * PAGE, 102), EINVAL);
    NEED(signal(SIGSEGV, jump) == SIG_DFL);
    for (size_t i = 0; i < first; i += 7) NEED(!reads(range + i * PAGE));
    NEED(signal(SIGSEGV, SIG_DFL) == jump);
    verify_range(first, COUNT, 1, "from the locked page on");
    NEED(!madvise(range, HALF * PAGE, 103));
    verify_range(0, first, 0, "without guards");
    verify_range(first, COUNT, 1, "from the locked page on, still");
}

static void protected(void) {
    NEED(!munmap(range + HALF * PAGE, PAGE));
    refill();
    REFUSED(mprotect(range, COUNT * PAGE, PROT_READ), ENOMEM);
    NEED(signal(SIGSEGV, jump) == SIG_DFL);
    for (size_t i = 0; i < COUNT; i += 7) {
        if (i == HALF) continue;
        int written = 0;
        if (!sigsetjmp(back, 1)) {
            *(volatile char *)(range + i * PAGE + PAGE - 1) = range[i * PAGE + PAGE - 1];
            written = 1;
        }
        NEED(written == (i > HALF));
    }
    NEED(signal(SIGSEGV, SIG_DFL) == jump);
    verify_range(0, COUNT, 1, "protected");
}

static void ended(void) {
    pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        verify_all("child");
        if (is("exit")) raw(SYS_exit, 5, 0, 0, 0, 0, 0);
        struct sock_filter kills[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog made = {4, kills};
        NEED(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        NEED(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &made));
        syscall(SYS_getppid);
        _exit(9);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child);
    NEED(is("exit") ? WIFEXITED(status) && WEXITSTATUS(status) == 5
                    : WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

static void spliced(void) {
    static struct iovec parts[2000];
    int ends[2];
    NEED(!pipe(ends));
    for (size_t i = 0; i < 2000; i++) parts[i] = (struct iovec){at(i), PAGE};
    REFUSED(vmsplice(ends[1], parts, 2000, 0), EINVAL);
    NEED(!fcntl(ends[0], F_SETFL, O_NONBLOCK));
    REFUSED(read(ends[0], range, PAGE), EAGAIN);
    REFUSED(vmsplice(ends[1], parts, 1, 1 << 4), EINVAL);
    // All that fits, also once splice(2) has used the pipe.
    int null = open("/dev/zero", O_RDONLY);
    for (int round = 0; round < 2; round++) {
        NEED(vmsplice(ends[1], parts + 3, 8, 0) == 8 * PAGE && read(ends[0], range, 8 * PAGE) == 8 * PAGE);
        NEED(!memcmp(range, at(3), PAGE) && !memcmp(range + 7 * PAGE, at(10), PAGE));
        NEED(splice(null, 0, ends[1], 0, PAGE, SPLICE_F_NONBLOCK) == PAGE && read(ends[0], range, PAGE) == PAGE);
    }
    // What lies before a hole, to the byte.
    NEED(!munmap(range + HALF * PAGE, PAGE));
    fill_at(range + (HALF - 1) * PAGE, 5, 1);
    struct iovec cut = {range + HALF * PAGE - 600, 5000};
    NEED(vmsplice(ends[1], &cut, 1, 0) == 600 && read(ends[0], range, PAGE) == 600);
    NEED(!memcmp(range, range + HALF * PAGE - 600, 600));
    cut.iov_base = range + HALF * PAGE, cut.iov_len = (size_t)1 << 62;
    REFUSED(vmsplice(ends[1], &cut, 1, 0), EFAULT);
    parts[0].iov_len = 100, parts[1].iov_base = (void *)PAGE;
    NEED(vmsplice(ends[1], parts, 2, 0) == 100 && read(ends[0], range, PAGE) == 100);
    NEED(!memcmp(range, at(0), 100));
    // It waits, though the pipe's descriptor would not: whoever reads has all of it.
    NEED(!fcntl(ends[0], F_SETFL, 0) && !fcntl(ends[1], F_SETFL, O_NONBLOCK));
    while (write(ends[1], at(2), PAGE) == PAGE) continue;
    REFUSED(vmsplice(ends[1], parts, 1, SPLICE_F_NONBLOCK), EAGAIN);
    pid_t child = fork();
    if (!child) {
        NEED(!close(ends[1]));
        for (ssize_t got; (got = read(ends[0], range, PAGE)) > 0;) continue;
        _exit(0);
    }
    NEED(vmsplice(ends[1], parts, 1, 0) == 100 && !close(ends[1]));
    need_right(child);
}

static void refused(void) {
    REFUSED((long)mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 1), EINVAL);
    for (int flags = 0; flags < 16; flags += 4) REFUSED(mlockall(flags), EINVAL);
    char *arguments[] = {"true", 0};
    REFUSED(fexecve(0, arguments, 0), EINVAL);
    REFUSED(fexecve(-1, arguments, arguments), EINVAL);
    NEED(!mlock(range + 4 * PAGE, PAGE));
    for (int advice = 20; advice < 22; advice++) { // MADV_COLD and MADV_PAGEOUT
        REFUSED(madvise(range, 8 * PAGE, advice), EINVAL);
        NEED(!madvise(range + 5 * PAGE, PAGE, advice));
    }
    NEED(!munlock(range + 4 * PAGE, PAGE));
    int file = open("/proc/self/exe", O_RDONLY | O_DIRECT);
    NEED(file >= 0 || errno == EINVAL);
    if (file < 0) missing("O_DIRECT");
    struct iovec parts[] = {{range, (size_t)-1}, {range, PAGE}};
    fill_at(range, 0, 1);
    REFUSED(readv(file, parts, 2), EINVAL);
    volatile size_t all = -1;
    REFUSED(pread(file, range, all, 0), EFAULT);
    verify_at(range, 0, 1, "not read into");
    // A part beyond the end of the addresses, though nothing is in it: before anything is done.
    struct iovec beyond[] = {{range, PAGE}, {(void *)-(long)(5 * PAGE), 0}}, target = {range + PAGE, PAGE};
    fill_at(range + PAGE, 1, 1);
    REFUSED(readv(file, beyond, 2), EFAULT);
    REFUSED(process_vm_writev(getpid(), beyond, 2, &target, 1, 0), EFAULT);
    REFUSED(process_vm_readv(getpid(), beyond, 2, &target, 1, 0), EFAULT);
    verify_at(range, 0, 1, "nor this");
    verify_at(range + PAGE, 1, 1, "nor written");
    // Where the device does not read so few bytes it does not read them after others either.
    int data = open("/var/tmp", O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    if (data < 0) missing("O_DIRECT in /var/tmp");
    NEED(pwrite(data, range, COUNT * PAGE, 0) == COUNT * PAGE);
    if (pread(data, range + PAGE, 100, 0) < 0) {
        REFUSED(pread(data, range, (COUNT - 1) * PAGE + 100, 0), EINVAL);
        REFUSED(read(data, range, (COUNT - 1) * PAGE + 100), EINVAL);
    }
    NEED(lseek(data, 0, SEEK_CUR) == 0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    arena(arguments);
    range = map(COUNT);
    if (is("wipe")) wiped();
    if (is("fork")) {
        refill();
        REFUSED(madvise(range + 1, COUNT * PAGE, MADV_DONTFORK), EINVAL);
        verify_range(0, HALF, 1, "not left out");
    }
    if (is("guard") || is("guard-lock")) guarded();
    if (is("protect")) protected();
    if (is("exit") || is("killed")) ended();
    if (is("splice")) spliced();
    if (is("refused")) refused();
    return done();
}
