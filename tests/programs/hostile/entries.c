// Functions of libc's that the program replaces, which a thread that it does not know must not come to.
//
// jumps: by jumps at their entries, as UCX does (an MPI library).
#include "hostile.h"
#include <dlfcn.h>

static __thread int known;

static long instead(long number, long a, long b, long c, long d, long e, long f) {
    if (!known) _exit(2);
    return syscall(number, a, b, c, d, e, f);
}

static void *own_mmap(void *a, size_t b, int c, int d, int e, off_t f) {
    return (void *)instead(SYS_mmap, (long)a, b, c, d, e, f);
}
static int own_munmap(void *a, size_t b) { return instead(SYS_munmap, (long)a, b, 0, 0, 0, 0); }
static int own_madvise(void *a, size_t b, int c) { return instead(SYS_madvise, (long)a, b, c, 0, 0, 0); }

// jmp *0(%rip), and where to.
static void divert(const char *name, uintptr_t to) {
    static void *libc;
    if (!libc) NEED(libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD));
    char *entry = dlsym(libc, name), code[14] = {(char)0xff, 0x25};
    NEED(entry);
    memcpy(code + 6, &to, sizeof to);
    char *page = entry - (uintptr_t)entry % PAGE;
    NEED(!mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
    memcpy(entry, code, sizeof code);
    NEED(!mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC));
}

int main(int count, char **arguments) {
    known = 1;
    begin(count, arguments);
    divert("mmap", (uintptr_t)own_mmap);
    divert("munmap", (uintptr_t)own_munmap);
    divert("madvise", (uintptr_t)own_madvise);
    arena(arguments);
    verify_all("paged");
    fork_and_verify();
    return done();
}
