// The program's own userfaultfd beside the pager's.
//
// before: registered before paging began, and served by a thread of the program. while: memory that is paged cannot
// be registered (EBUSY), other memory can. fork: as before, then a fork.
#include "hostile.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

enum { OWN = 4 * MIB };
static char *own;
static int faults_of;

static int open_own(void) {
    struct uffdio_api api = {.api = UFFD_API};
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), made;
    made = device >= 0 ? ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC) : syscall(SYS_userfaultfd, O_CLOEXEC);
    if (device >= 0) close(device);
    if (made < 0) missing("userfaultfd");
    NEED(!ioctl(made, UFFDIO_API, &api));
    return made;
}

static int take(char *from, size_t count) {
    struct uffdio_register range = {{(uintptr_t)from, count * PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
    return ioctl(faults_of, UFFDIO_REGISTER, &range);
}

static void *serve(void *argument) {
    (void)argument;
    static char page[PAGE] __attribute__((aligned(4096)));
    for (;;) {
        struct uffd_msg message;
        if (read(faults_of, &message, sizeof message) != sizeof message) continue;
        NEED(message.event == UFFD_EVENT_PAGEFAULT);
        uintptr_t where = message.arg.pagefault.address & -(uintptr_t)PAGE;
        size_t number = (where - (uintptr_t)own) / PAGE;
        NEED(number < OWN);
        fill_at(page, number, 55);
        struct uffdio_copy copy = {.dst = where, .src = (uintptr_t)page, .len = PAGE};
        NEED(!ioctl(faults_of, UFFDIO_COPY, &copy) || errno == EEXIST);
    }
}

static void verify_own(const char *what) {
    for (size_t i = 0; i < OWN; i++) verify_at(own + i * PAGE, i, 55, what);
}

static void serve_own(void) {
    pthread_t server;
    own = map(OWN);
    faults_of = open_own();
    NEED(!take(own, OWN));
    NEED(!pthread_create(&server, 0, serve, 0));
}

int main(int count, char **arguments) {
    begin(count, arguments);
    if (is("while")) {
        arena(arguments);
        faults_of = open_own();
        // Natively it may: the pages are there, so nothing comes of it.
        if (take(at(1000), 100)) NEED(errno == EBUSY);
        fork_and_verify();
        return done();
    }
    serve_own();
    for (size_t i = 0; i < OWN; i += 2) verify_at(own + i * PAGE, i, 55, "served");
    arena(arguments);
    verify_own("served");
    verify_all("beside");
    // Given away, they are missing again: the program's own server brings them back.
    NEED(!madvise(own, OWN / 2 * PAGE, MADV_DONTNEED));
    verify_own("served again");
    if (is("fork")) {
        pid_t pid = fork();
        if (!pid) {
            // Registrations are not inherited without UFFD_FEATURE_EVENT_FORK; what was there is.
            verify_own("child");
            child_work();
            _exit(0);
        }
        parent_work(pid);
    }
    verify_own("at the end");
    return done();
}
