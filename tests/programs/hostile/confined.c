// A program that gives up what the pager may need: directories, ids, descriptors. Its pages stay right.
//
// chroot, setuid, setresuid-raw, capabilities, nofile, pidlimit: while paging, then a fork. chroot-before, setuid-before,
// capabilities-before, nofile-before: before paging began; there one line that says that the process has no limit is right as
// well, but for capabilities. hidden, hidden-before: not dumpable, and without capabilities. clock, clock-before: reading the
// time stamp counter is a SIGSEGV, and clocks are read by it. cpuid, cpuid-before: that instruction is a SIGSEGV. memlock, memlock-before: no page may be locked, for the key of the
// swap file either.
// chroot needs an empty directory as the working directory; setuid and chroot need root.
#include "hostile.h"
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { NOBODY = 65534 };

static void give_up_capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {0};
    NEED(!syscall(SYS_capset, &header, none));
}

static void confine(void) {
    struct rlimit three = {3, 3}, one = {1, 1}, none = {0, 0};
    if (!strncmp(variant, "chroot", 6)) {
        if (chroot(".")) missing("chroot");
        NEED(!chdir("/"));
        NEED(access("/proc/self", F_OK));
    } else if (!strncmp(variant, "setuid", 6)) {
        if (setgid(NOBODY) || setuid(NOBODY)) missing("setuid");
        NEED(getuid() == NOBODY && setuid(0));
    } else if (is("setresuid-raw")) {
        // Of this thread alone: the pager's keep theirs, as with every id that is set behind libc's back.
        if (raw(SYS_setresuid, NOBODY, NOBODY, NOBODY, 0, 0, 0)) missing("setresuid");
    } else if (!strncmp(variant, "capabilities", 12)) {
        give_up_capabilities();
    } else if (!strncmp(variant, "hidden", 6)) {
        NEED(!prctl(PR_SET_DUMPABLE, 0));
        give_up_capabilities();
    } else if (!strncmp(variant, "clock", 5)) {
        NEED(!prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
    } else if (!strncmp(variant, "cpuid", 5)) {
        // ARCH_SET_CPUID of asm/prctl.h: from now on the instruction is SIGSEGV in this thread.
        if (syscall(SYS_arch_prctl, 0x1012, 0)) missing("arch_prctl");
    } else if (!strncmp(variant, "memlock", 7)) {
        NEED(!setrlimit(RLIMIT_MEMLOCK, &none));
        give_up_capabilities();
    } else if (!strncmp(variant, "nofile", 6)) {
        NEED(!setrlimit(RLIMIT_NOFILE, &three));
    } else if (is("pidlimit")) {
        // Root is not bound by it: the id goes as well.
        NEED(!setrlimit(RLIMIT_NPROC, &one));
    }
}

int main(int count, char **arguments) {
    begin(count, arguments);
    int before = strstr(variant, "-before") != 0;
    if (before) confine();
    arena(arguments);
    if (!before) confine();
    verify_all("confined");
    fork_and_verify();
    NEED(!madvise(at(500), 100 * PAGE, MADV_DONTNEED));
    zeroed(500, 600);
    fork_and_verify();
    return done();
}
