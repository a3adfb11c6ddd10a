// A file that a FUSE server serves past the page cache: the kernel pins the reader's pages, though nothing at the descriptor says so.
//
// direct: one thread reads such a file into half of the memory, the other one touches the other half. The server is a child, and the file
// is seen in a mount namespace of this program's own, at the program's own path. silent: the server has no answer to statfs(2).
#include "hostile.h"
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/prctl.h>

enum { PART = 256, ROUNDS = 2, FIRST = 200, LATE_US = 50000 };

static int served;
static pid_t server;
static volatile int reading = 1;

static void answer(int device, uint64_t unique, int error, const void *data, size_t length) {
    struct fuse_out_header header = {sizeof header + length, error, unique};
    struct iovec parts[2] = {{&header, sizeof header}, {(void *)data, length}};
    NEED(writev(device, parts, length ? 2 : 1) > 0 || errno == ENOENT);
}

// Answers late, so that the reader's pages are pinned for a while.
static void serve_read(int device, uint64_t unique, const struct fuse_read_in *asked) {
    static char data[1 << 20];
    size_t count = asked->size / PAGE;
    for (size_t i = 0; i < count; i++) {
        size_t page = asked->offset / PAGE + i;
        fill_at(data + i * PAGE, page % (pages / 2), FIRST + page / (pages / 2));
    }
    usleep(LATE_US);
    answer(device, unique, 0, data, count * PAGE);
}

static void serve(int device) {
    static char request[(1 << 20) + PAGE];
    struct fuse_init_out begun = {.major = 7, .minor = 31, .max_write = 1 << 20, .flags = FUSE_MAX_PAGES, .max_pages = 256};
    struct fuse_attr attr = {.ino = 1, .size = pages / 2 * PAGE * ROUNDS, .mode = S_IFREG | 0444, .nlink = 1};
    struct fuse_attr_out known = {.attr_valid = 1000, .attr = attr};
    struct fuse_statfs_out room = {.st = {.bsize = PAGE, .namelen = 255, .frsize = PAGE}};
    struct fuse_open_out opened = {.open_flags = FOPEN_DIRECT_IO};
    while (read(device, request, sizeof request) > 0) {
        struct fuse_in_header *header = (void *)request;
        switch (header->opcode) {
        case FUSE_INIT: answer(device, header->unique, 0, &begun, sizeof begun); break;
        case FUSE_GETATTR: answer(device, header->unique, 0, &known, sizeof known); break;
        case FUSE_OPEN: answer(device, header->unique, 0, &opened, sizeof opened); break;
        case FUSE_STATFS:
            answer(device, header->unique, is("silent") ? -ENOSYS : 0, &room, is("silent") ? 0 : sizeof room);
            break;
        case FUSE_READ: serve_read(device, header->unique, (void *)(header + 1)); break;
        case FUSE_RELEASE: case FUSE_FLUSH: answer(device, header->unique, 0, 0, 0); break;
        case FUSE_FORGET: case FUSE_BATCH_FORGET: break;
        default: answer(device, header->unique, -ENOSYS, 0, 0);
        }
    }
    _exit(0);
}

// The file, at `path`, and who serves it.
static void mounted(const char *path) {
    char options[100];
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0 || unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0)) missing("FUSE and namespaces");
    snprintf(options, sizeof options, "fd=%d,rootmode=100000,user_id=0,group_id=0", device);
    if (mount("fuse", path, "fuse", MS_NOSUID | MS_NODEV, options)) missing("a FUSE mount");
    server = fork();
    NEED(server >= 0);
    // It keeps the namespace, and so the mount that it waits for.
    if (!server && !prctl(PR_SET_PDEATHSIG, SIGKILL)) serve(device);
    close(device);
    served = open(path, O_RDONLY | O_CLOEXEC);
    NEED(served >= 0);
}

static void *read_all(void *nothing) {
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < pages / 2; i += PART) {
            ssize_t got = pread(served, at(i), PART * PAGE, ((off_t)round * (pages / 2) + i) * PAGE);
            if (got != PART * PAGE) end(2, "a read of page %zu: %zd, errno %d", i, got, errno);
            memset(generation + i, FIRST + round, PART);
        }
    reading = 0;
    return nothing;
}

int main(int count, char **arguments) {
    begin(count, arguments);
    pages = strtoul(arguments[1], 0, 10) * MIB;
    mounted(arguments[0]);
    arena(arguments);
    pthread_t reader;
    NEED(!pthread_create(&reader, 0, read_all, 0));
    while (reading) verify(pages / 2, pages, "beside the reads");
    NEED(!pthread_join(reader, 0));
    close(served);
    NEED(!kill(server, SIGKILL) && waitpid(server, 0, 0) == server);
    return done();
}
