// Operations with memory that is not the pager's: shared, sealed, or served by a userfaultfd of the program.
#include "torture.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/shm.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

// What lies over a part of the region now is zeroes; it is written, verified, and private memory comes back.
static void use_and_restore(Worker *w, Region *r, size_t from, size_t count, const char *what) {
    zero_tags(r, from, count);
    for (size_t i = from; i < from + count; i++) check(r, i, what), put(w, r, i);
    check_region(r, what);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    NEED(mmap(at(r, from), count * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == at(r, from));
    zero_tags(r, from, count);
    for (size_t i = from; i < from + count; i++) check(r, i, what);
}

void op_shm(Worker *w, Region *r) {
    size_t from, count;
    if (r->fixed) return op_rw(w, r);
    part(w, r, &from, &count);
    int id = shmget(IPC_PRIVATE, count * PAGE, IPC_CREAT | 0600);
    if (id < 0) {
        not_here = 1;
        return;
    }
    long where = (long)at(r, from);
    long got = below(w, 2) ? (long)shmat(id, at(r, from), SHM_REMAP) : raw(SYS_shmat, id, where, SHM_REMAP, 0, 0);
    NEED(!shmctl(id, IPC_RMID, 0));
    NEED(got == where);
    use_and_restore(w, r, from, count, "System V memory");
}

void op_memfd(Worker *w, Region *r) {
    size_t from, count;
    char page[PAGE];
    if (r->fixed) return op_rw(w, r);
    part(w, r, &from, &count);
    pthread_rwlock_rdlock(&descriptors);
    int file = memfd_create("torture", MFD_CLOEXEC);
    NEED(file >= 0 && !ftruncate(file, count * PAGE));
    // The file gets what the pages had.
    for (size_t i = 0; i < count; i++) NEED(pwrite(file, at(r, from + i), PAGE, i * PAGE) == PAGE);
    char *got = mmap(at(r, from), count * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    NEED(got == at(r, from));
    for (size_t i = from; i < from + count; i++) check(r, i, "in a memfd");
    put(w, r, from);
    NEED(pread(file, page, PAGE, 0) == PAGE);
    check_page(page, r->tags[from], "read from a memfd");
    NEED(!ftruncate(file, 0) && !ftruncate(file, count * PAGE));
    close(file);
    pthread_rwlock_unlock(&descriptors);
    use_and_restore(w, r, from, count, "memfd");
}

// A userfaultfd of the program: it fills shared memory out of pages that may be paged out.
void op_uffd(Worker *w, Region *r) {
    enum { COUNT = 16 };
    size_t from = below(w, r->pages - COUNT);
    struct uffdio_api api = {.api = UFFD_API};
    pthread_rwlock_rdlock(&descriptors);
    int own = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (own < 0 || ioctl(own, UFFDIO_API, &api)) {
        if (own >= 0) close(own);
        pthread_rwlock_unlock(&descriptors);
        not_here = 1;
        return;
    }
    char *filled = mmap(0, COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(filled != MAP_FAILED);
    struct uffdio_register range = {{(uintptr_t)filled, COUNT * PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
    NEED(!ioctl(own, UFFDIO_REGISTER, &range));
    for (size_t i = 0; i < COUNT; i++) {
        struct uffdio_copy copy = {.dst = (uintptr_t)filled + i * PAGE, .src = (uintptr_t)at(r, from + i), .len = PAGE};
        NEED(!ioctl(own, UFFDIO_COPY, &copy));
    }
    for (size_t i = 0; i < COUNT; i++) check_page(filled + i * PAGE, r->tags[from + i], "filled by userfaultfd");
    NEED(!munmap(filled, COUNT * PAGE));
    // What is paged is taken; what is not can be had, and is given back.
    range.range = (struct uffdio_range){(uintptr_t)at(r, from), COUNT * PAGE};
    if (ioctl(own, UFFDIO_REGISTER, &range)) NEED(errno == EBUSY || r->backed);
    else NEED(!ioctl(own, UFFDIO_UNREGISTER, &range.range));
    close(own);
    pthread_rwlock_unlock(&descriptors);
    for (size_t i = 0; i < COUNT; i++) check(r, from + i, "beside a userfaultfd");
}

static int refused(long result) { return result == -1 && errno == EPERM; }

// What is sealed can never be unmapped: in a child, and a few times in the process itself.
void op_seal(Worker *w, Region *r) {
    enum { COUNT = 16, HERE_MAX = 3 };
    int here = w->sealed < HERE_MAX && below(w, 4) == 0;
    pid_t pid = here ? 0 : fork();
    if (pid > 0) return wait_for(pid, "seal");
    NEED(pid == 0);
    Region sealed = {0};
    make(&sealed, 2 * COUNT);
    for (size_t i = 0; i < sealed.pages; i++) put(w, &sealed, i);
    check(r, below(w, r->pages), "before sealing");
    if (syscall(SYS_mseal, at(&sealed, 4), COUNT * PAGE, 0)) {
        NEED(errno == ENOSYS);
        not_here = 1;
    } else {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        NEED(refused(munmap(at(&sealed, 0), 8 * PAGE)));
        NEED(refused((long)mmap(at(&sealed, 6), PAGE, PROT_READ, flags, -1, 0)));
        NEED(refused(mprotect(at(&sealed, 4), COUNT * PAGE, PROT_READ)));
        NEED(refused((long)mremap(at(&sealed, 4), COUNT * PAGE, 2 * COUNT * PAGE, MREMAP_MAYMOVE)));
        check_region(&sealed, "sealed");
        check_region(r, "beside sealed");
        check_region(&sealed, "sealed, later");
        w->sealed++;
    }
    if (!here) _exit(0);
}
