// Files of RAM that are paged, used by their descriptors too: files MIB CASE...
//
// A case makes a file without a name, maps it, writes through MIB MiB and comes to it in another way: what it prints is what it prints without Outpage. "all" is
// every case, a process each.
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
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
static size_t bytes;
static char *own_path;

static void must(int ok, const char *what) {
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static int make(int flags) {
	int fd = memfd_create("case", flags);
	must(fd >= 0, "memfd_create");
	must(ftruncate(fd, bytes) == 0, "ftruncate");
	return fd;
}

static char *view(int fd) {
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(at != MAP_FAILED, "mmap");
	return at;
}

static uint64_t word(size_t i, unsigned round) {
	return (i + 1) * 0x9e3779b97f4a7c15u + round;
}

// Each page has four words that tell which page it is, and which round.
static void fill(char *at, unsigned round) {
	for (size_t i = 0; i < bytes; i += PAGE / 4)
		*(uint64_t *)(at + i) = word(i, round);
}

static size_t wrong_from(const char *at, size_t from, size_t to, unsigned round) {
	size_t wrong = 0;
	for (size_t i = from; i < to; i += PAGE / 4)
		wrong += *(const uint64_t *)(at + i) != word(i, round);
	return wrong;
}

static size_t wrong_in(const char *at, unsigned round) {
	return wrong_from(at, 0, bytes, round);
}

static size_t not_zero(const char *at, size_t from, size_t to) {
	size_t wrong = 0;
	for (size_t i = from; i < to; i++)
		wrong += at[i] != 0;
	return wrong;
}

// Reads all of it by the descriptor.
static size_t wrong_by_reading(int fd, unsigned round) {
	char *buffer = malloc(1 << 16);
	size_t wrong = 0;
	for (size_t at = 0; at < bytes; at += 1 << 16) {
		ssize_t got = pread(fd, buffer, 1 << 16, at);
		must(got == 1 << 16, "pread");
		for (size_t i = 0; i < 1 << 16; i += PAGE / 4)
			wrong += *(uint64_t *)(buffer + i) != word(at + i, round);
	}
	free(buffer);
	return wrong;
}

static void say(const char *name, size_t wrong) {
	printf("%s: %zu wrong\n", name, wrong);
}

static int filled(char **at) {
	int fd = make(MFD_CLOEXEC);
	*at = view(fd);
	fill(*at, 1);
	return fd;
}

static void views(void) {
	char *one, *two;
	int fd = filled(&one);
	two = view(fd);
	say("second view", wrong_in(two, 1));
	fill(two, 2);
	say("first view", wrong_in(one, 2));
	close(fd);
	say("closed", wrong_in(one, 2));
}

static void reads(void) {
	char *at;
	int fd = filled(&at);
	say("pread", wrong_by_reading(fd, 1));
	fill(at, 2);
	say("pread again", wrong_by_reading(fd, 2));
}

static void read_alone(void) {
	char *at, buffer[PAGE];
	int fd = filled(&at);
	size_t wrong = 0;
	for (size_t i = 0; i < bytes; i += PAGE) {
		must(read(fd, buffer, PAGE) == PAGE, "read");
		wrong += *(uint64_t *)buffer != word(i, 1);
	}
	say("read", wrong);
}

static void read_vector(void) {
	char *at, buffer[2 * PAGE];
	int fd = filled(&at);
	struct iovec parts[2] = { { buffer, PAGE }, { buffer + PAGE, PAGE } };
	must(preadv(fd, parts, 2, bytes - 2 * PAGE) == 2 * PAGE, "preadv");
	say("preadv", *(uint64_t *)(buffer + PAGE) != word(bytes - PAGE, 1));
}

static void by_number(void) {
	char *at, buffer[PAGE];
	int fd = filled(&at);
	must(syscall(SYS_pread64, fd, buffer, PAGE, bytes / 2) == PAGE, "pread64");
	say("by number", *(uint64_t *)buffer != word(bytes / 2, 1));
	fill(at, 2);
	*(uint64_t *)buffer = 7;
	must(syscall(SYS_pwrite64, fd, buffer, 8, bytes / 2) == 8, "pwrite64");
	say("written by number", *(uint64_t *)(at + bytes / 2) != 7);
}

static void writes(void) {
	char *at;
	int fd = filled(&at);
	uint64_t value = 42;
	size_t wrong = 0;
	// A word of each page: the rest of it is what the mapping has.
	for (size_t i = 0; i < bytes; i += PAGE)
		must(pwrite(fd, &value, 8, i + 8) == 8, "pwrite");
	for (size_t i = 0; i < bytes; i += PAGE)
		wrong += *(uint64_t *)(at + i + 8) != 42;
	say("pwrite", wrong + wrong_in(at, 1));
	struct iovec part = { &value, 8 };
	must(lseek(fd, 16, SEEK_SET) == 16 && writev(fd, &part, 1) == 8, "writev");
	must(pwritev(fd, &part, 1, 24) == 8, "pwritev");
	must(pwritev2(fd, &part, 1, 32, 0) == 8, "pwritev2");
	must(write(fd, &value, 8) == 8, "write");
	say("writev", memcmp(at + 16, at + 8, 8) || memcmp(at + 24, at + 8, 8) || memcmp(at + 32, at + 8, 8));
}

// Another file gets all of it.
static void copied(int how) {
	char *at;
	int fd = filled(&at), other = make(MFD_CLOEXEC), ends[2];
	must(pipe(ends) == 0, "pipe");
	loff_t from = 0, to = 0;
	while ((size_t)from < bytes) {
		size_t left = bytes - from;
		ssize_t done;
		if (how == 0) {
			done = sendfile(other, fd, &from, left);
		} else if (how == 1) {
			done = copy_file_range(fd, &from, other, &to, left, 0);
		} else {
			done = splice(fd, &from, ends[1], NULL, left < 65536 ? left : 65536, 0);
			for (ssize_t out = 0; done > 0 && out < done;) {
				ssize_t got = splice(ends[0], NULL, other, &to, done - out, 0);
				must(got > 0, "splice out");
				out += got;
			}
		}
		must(done > 0, "copy");
	}
	say("copy", wrong_by_reading(other, 1));
	say("copy mapped", wrong_in(view(other), 1));
}

static void sendfiles(void) { copied(0); }
static void copies(void) { copied(1); }
static void splices(void) { copied(2); }

static void seeks(void) {
	char *at;
	int fd = filled(&at);
	printf("data at %ld\n", (long)lseek(fd, bytes / 2, SEEK_DATA) - (long)(bytes / 2));
	printf("hole at %ld\n", (long)lseek(fd, 0, SEEK_HOLE) - (long)bytes);
	printf("end at %ld\n", (long)lseek(fd, 0, SEEK_END) - (long)bytes);
	say("after", wrong_in(at, 1));
}

static void truncates(void) {
	char *at;
	int fd = filled(&at);
	must(ftruncate(fd, bytes / 2 + 100) == 0, "shorter");
	must(ftruncate(fd, bytes) == 0, "longer");
	say("kept", wrong_from(at, 0, bytes / 2, 1));
	say("zero", not_zero(at, bytes / 2 + 100, bytes));
	must(ftruncate(fd, 0) == 0 && ftruncate(fd, bytes) == 0, "anew");
	say("all zero", not_zero(view(fd), 0, bytes));
}

static void punches(void) {
	char *at;
	int fd = filled(&at), how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	must(fallocate(fd, how, 16 * PAGE, 64 * PAGE) == 0, "a hole");
	say("hole", not_zero(at, 16 * PAGE, 80 * PAGE));
	say("around", wrong_from(at, 0, 16 * PAGE, 1) + wrong_from(at, 80 * PAGE, bytes, 1));
	fill(at, 2);
	say("filled", wrong_in(at, 2));
	must(fallocate(fd, how, 100 * PAGE + 1, PAGE) == 0, "a hole apart");
	say("unaligned", not_zero(at, 100 * PAGE + 1, 101 * PAGE + 1) + (*(uint64_t *)(at + 102 * PAGE) != word(102 * PAGE, 2)));
	say("read", wrong_by_reading(fd, 2) > 9);
	must(fallocate(fd, how, 0, bytes) == 0, "all");
	say("all", not_zero(at, 0, bytes));
}

static void reserves(void) {
	int fd = memfd_create("case", MFD_CLOEXEC);
	must(fallocate(fd, 0, 0, bytes) == 0, "fallocate");
	struct stat stat;
	must(fstat(fd, &stat) == 0, "fstat");
	printf("size %d\n", (size_t)stat.st_size == bytes);
	char *at = view(fd);
	say("zero", not_zero(at, 0, bytes));
	fill(at, 1);
	must(fallocate(fd, 0, 0, bytes) == 0, "again");
	say("reserved again", wrong_in(at, 1));
	must(fallocate(fd, FALLOC_FL_KEEP_SIZE, PAGE, PAGE) == 0, "keep");
	say("read", wrong_by_reading(fd, 1));
	int other = memfd_create("case", MFD_CLOEXEC);
	printf("posix_fallocate %d", posix_fallocate(other, 0, bytes));
	printf(" %d", posix_fallocate(other, -1, bytes));
	printf(" %d\n", posix_fallocate(other, 0, 0));
	at = view(other);
	fill(at, 3);
	say("posix", wrong_in(at, 3));
}

static void privately(void) {
	char *at;
	int fd = filled(&at);
	char *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	must(own != MAP_FAILED, "mmap");
	say("private", wrong_in(own, 1));
	fill(own, 2);
	say("shared", wrong_in(at, 1));
}

static void small(void) {
	int fd = make(MFD_CLOEXEC);
	char *window = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 32 * PAGE);
	must(window != MAP_FAILED, "window");
	*(uint64_t *)window = 5;
	char *at = view(fd);
	say("seen", *(uint64_t *)(at + 32 * PAGE) != 5);
	fill(at, 1);
	size_t wrong = 0;
	for (size_t i = 0; i < 8 * PAGE; i += PAGE / 4)
		wrong += *(uint64_t *)(window + i) != word(32 * PAGE + i, 1);
	say("window", wrong);
}

// Mapped while it is small, and then it grows.
static void grows(void) {
	int fd = memfd_create("case", MFD_CLOEXEC);
	must(ftruncate(fd, 4 * PAGE) == 0, "small");
	char *window = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(window != MAP_FAILED && ftruncate(fd, bytes) == 0, "grown");
	char *at = view(fd);
	fill(at, 1);
	say("window", wrong_from(window, 0, 4 * PAGE, 1));
	say("all", wrong_in(at, 1));
}

static void again(void) {
	char *at;
	int fd = filled(&at);
	must(munmap(at, bytes) == 0, "munmap");
	usleep(600000);
	at = view(fd);
	say("mapped again", wrong_in(at, 1));
	must(munmap(at, bytes) == 0, "munmap");
	usleep(300000);
	say("read", wrong_by_reading(fd, 1));
}

static void wait_for(pid_t pid) {
	int status;
	must(waitpid(pid, &status, 0) == pid, "waitpid");
	if (status != 0)
		printf("a child ended with %d\n", status);
}

static void forks(void) {
	char *at;
	int fd = filled(&at);
	pid_t pid = fork();
	if (pid == 0) {
		size_t wrong = wrong_in(at, 1);
		fill(at, 2);
		char *other = view(fd);
		wrong += wrong_in(other, 2);
		fill(other, 3);
		_exit(wrong != 0);
	}
	wait_for(pid);
	say("mapping", wrong_in(at, 3));
	pid = fork();
	if (pid == 0)
		_exit(wrong_by_reading(fd, 3) != 0);
	wait_for(pid);
	say("after a read", wrong_in(at, 3));
	fill(at, 4);
	pid = fork();
	if (pid == 0)
		_exit(wrong_in(at, 4) != 0);
	wait_for(pid);
}

// Only a child has it mapped, and its parent reads it when that is gone.
static void outlives(void) {
	int fd = make(MFD_CLOEXEC);
	pid_t pid = fork();
	if (pid == 0) {
		fill(view(fd), 1);
		_exit(0);
	}
	wait_for(pid);
	usleep(300000);
	say("mapped", wrong_in(view(fd), 1));
	say("read", wrong_by_reading(fd, 1));
}

static void executes(void) {
	char number[16], size[16], *at;
	int fd = make(0);
	at = view(fd);
	fill(at, 1);
	snprintf(number, sizeof number, "%d", fd);
	snprintf(size, sizeof size, "%zu", bytes >> 20);
	for (int how = 0; how < 2; how++) {
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			execl(own_path, own_path, size, how ? "inherit-read" : "inherit-map", number, NULL);
			_exit(1);
		}
		wait_for(pid);
	}
	say("changed", wrong_in(at, 7));
}

static void send_file(int socket, int fd) {
	char byte = 0, room[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	*head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(head), &fd, sizeof fd);
	must(sendmsg(socket, &message, 0) == 1, "sendmsg");
}

static int take_file(int socket) {
	char byte, room[CMSG_SPACE(sizeof(int))];
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	int fd = -1;
	if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

// Given to a process that was there before, mapped before or after.
static void sent(int late) {
	int ends[2];
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
	pid_t pid = fork();
	if (pid == 0) {
		int fd = take_file(ends[1]);
		if (fd < 0)
			_exit(2);
		char *at = view(fd);
		char byte;
		if (read(ends[1], &byte, 1) != 1)
			_exit(3);
		size_t wrong = wrong_in(at, 1);
		fill(at, 2);
		_exit(wrong != 0);
	}
	int fd = make(MFD_CLOEXEC);
	if (late)
		send_file(ends[0], fd);
	char *at = view(fd);
	fill(at, 1);
	if (!late)
		send_file(ends[0], fd);
	must(write(ends[0], "", 1) == 1, "write");
	wait_for(pid);
	say("sent", wrong_in(at, 2));
}

static void sends(void) { sent(0); }
static void sends_first(void) { sent(1); }

static void again_by_proc(void) {
	char path[32], *at;
	int fd = filled(&at);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int other = open(path, O_RDWR), read_only = open(path, O_RDONLY), same = dup(fd);
	must(other >= 0 && read_only >= 0 && same >= 0, "open");
	say("opened", wrong_in(view(other), 1));
	char *seen = mmap(NULL, bytes, PROT_READ, MAP_SHARED, read_only, 0);
	must(seen != MAP_FAILED, "read-only");
	say("read-only", wrong_in(seen, 1));
	fill(at, 2);
	say("changed", wrong_in(seen, 2));
	say("dup", wrong_by_reading(same, 2));
}

static void fixed(void) {
	int fd = make(MFD_CLOEXEC);
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(at != MAP_FAILED, "mmap");
	fill(at, 9);
	char *over = mmap(at, bytes / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, bytes / 2);
	must(over == at, "fixed");
	say("zero", not_zero(at, 0, bytes / 2));
	say("rest", wrong_from(at, bytes / 2, bytes, 9));
	char *all = view(fd);
	fill(all, 1);
	size_t wrong = 0;
	for (size_t i = 0; i < bytes / 2; i += PAGE / 4)
		wrong += *(uint64_t *)(at + i) != word(bytes / 2 + i, 1);
	say("over", wrong);
	must(mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at, "none");
	say("left", wrong_in(all, 1));
	char *taken = mmap(all, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	printf("%d\n", taken == MAP_FAILED && errno == EEXIST);
}

static void moves(void) {
	int fd = make(MFD_CLOEXEC);
	char *at = mmap(NULL, bytes / 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *all = view(fd);
	must(at != MAP_FAILED, "mmap");
	fill(all, 1);
	char *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	at = mremap(at, bytes / 2, bytes / 2, MREMAP_MAYMOVE | MREMAP_FIXED, room);
	must(at == room, "moved");
	say("moved", wrong_from(at, 0, bytes / 2, 1));
	at = mremap(at, bytes / 2, bytes, MREMAP_MAYMOVE);
	must(at != MAP_FAILED, "grown");
	fill(all, 2);
	say("grown", wrong_in(at, 2));
	must(mprotect(all, bytes, PROT_READ) == 0, "mprotect");
	fill(at, 3);
	say("read", wrong_in(all, 3));
}

static void arena(void) {
	char name[] = "/dev/shm/outpage-test-XXXXXX";
	int fd = mkstemp(name);
	must(fd >= 0 && unlink(name) == 0 && ftruncate(fd, bytes) == 0, "a file");
	char *at = view(fd);
	fill(at, 1);
	say("mapped", wrong_in(at, 1));
	pid_t pid = fork();
	if (pid == 0) {
		size_t wrong = wrong_in(at, 1);
		fill(at, 2);
		_exit(wrong != 0);
	}
	wait_for(pid);
	say("changed", wrong_in(at, 2));
	say("read", wrong_by_reading(fd, 2));
}

// Mapped while it has a name, which it loses before anything is written.
static void renamed(void) {
	char name[] = "/dev/shm/outpage-test-XXXXXX";
	int fd = mkstemp(name);
	must(fd >= 0 && ftruncate(fd, bytes) == 0, "a file");
	char *one = view(fd);
	must(unlink(name) == 0, "unlink");
	char *two = view(fd);
	fill(two, 1);
	say("mapped before", wrong_in(one, 1));
	say("mapped after", wrong_in(two, 1));
}

// Gets a name when it has been written, and lasts.
static void linked(void) {
	char path[32], name[64];
	int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	must(fd >= 0 && ftruncate(fd, bytes) == 0, "a file");
	char *at = view(fd);
	fill(at, 1);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	snprintf(name, sizeof name, "/dev/shm/outpage-test-%d", getpid());
	must(linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0, "linkat");
	say("linked", wrong_in(at, 1));
	munmap(at, bytes);
	close(fd);
	// Whoever pages it may find out meanwhile that nobody has it open.
	sleep(2);
	fd = open(name, O_RDWR | O_CLOEXEC);
	must(fd >= 0, "open");
	say("read", wrong_by_reading(fd, 1));
	must(unlink(name) == 0, "unlink");
	say("mapped", wrong_in(view(fd), 1));
}

// Has a name, or may be sealed: it stays with the kernel.
static void kernels(void) {
	int fd = make(MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char *at = view(fd);
	fill(at, 1);
	say("sealable", wrong_by_reading(fd, 1));
	munmap(at, bytes);
	printf("sealed %d\n", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	say("sealed", wrong_by_reading(fd, 1));
}

struct shared {
	int fd;
	char *one, *two;
	volatile int stop;
};

static void *reader(void *argument) {
	struct shared *all = argument;
	char buffer[PAGE];
	while (!all->stop)
		must(pread(all->fd, buffer, PAGE, bytes / 2) == PAGE, "pread");
	return NULL;
}

static void threads(void) {
	struct shared all = { .fd = make(MFD_CLOEXEC) };
	pthread_t thread;
	all.one = view(all.fd);
	all.two = view(all.fd);
	fill(all.one, 1);
	must(pthread_create(&thread, NULL, reader, &all) == 0, "pthread_create");
	size_t wrong = 0;
	for (unsigned round = 2; round < 5; round++) {
		fill(round & 1 ? all.one : all.two, round);
		wrong += wrong_in(round & 1 ? all.two : all.one, round);
	}
	all.stop = 1;
	pthread_join(thread, NULL);
	say("threads", wrong);
}

static void modes(void) {
	char *at;
	int fd = filled(&at);
	struct stat stat;
	must(fchmod(fd, 0600) == 0, "fchmod");
	say("read", wrong_by_reading(fd, 1));
	must(fstat(fd, &stat) == 0, "fstat");
	printf("mode %o links %d\n", stat.st_mode, (int)stat.st_nlink);
}

static void advice(void) {
	char *at;
	int fd = filled(&at);
	must(madvise(at, 64 * PAGE, MADV_REMOVE) == 0, "remove");
	must(madvise(at + 64 * PAGE, 64 * PAGE, MADV_DONTNEED) == 0, "dontneed");
	say("removed", not_zero(at, 0, 64 * PAGE));
	say("kept", wrong_from(at, 64 * PAGE, bytes, 1));
	fill(at, 2);
	say("read", wrong_by_reading(fd, 2));
	must(madvise(at, 64 * PAGE, MADV_REMOVE) == 0, "remove");
	say("removed again", not_zero(at, 0, 64 * PAGE));
	must(msync(at, bytes, MS_SYNC) == 0, "msync");
	say("rest", wrong_from(at, 64 * PAGE, bytes, 2));
}

// Given up, and then emptied: what is mapped of it is registered nowhere.
static void removes(void) {
	char *at;
	int fd = filled(&at);
	say("read", wrong_by_reading(fd, 1));
	must(madvise(at, bytes, MADV_REMOVE) == 0, "remove");
	char *other = view(fd);
	fill(other, 2);
	say("first", wrong_in(at, 2));
	say("second", wrong_in(other, 2));
}

// Mapped first by a descriptor that may only read.
static void read_only_first(void) {
	char path[32];
	int fd = make(MFD_CLOEXEC);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int read_only = open(path, O_RDONLY | O_CLOEXEC);
	must(read_only >= 0, "open");
	char *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, read_only, 0);
	must(own != MAP_FAILED, "private");
	close(read_only);
	char *at = view(fd);
	fill(at, 1);
	say("private", wrong_in(own, 1));
}

// Made shorter and longer again by its path.
static void by_path(void) {
	char path[32], *at;
	int fd = filled(&at);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	must(truncate(path, PAGE) == 0 && truncate(path, bytes) == 0, "truncate");
	say("zero", not_zero(at, PAGE, bytes));
	say("kept", wrong_from(at, 0, PAGE, 1));
	fd = filled(&at);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int emptied = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
	must(emptied >= 0 && ftruncate(emptied, bytes) == 0, "open");
	say("emptied", not_zero(at, 0, bytes));
	fill(at, 2);
	say("read", wrong_by_reading(fd, 2));
}

// Without room for a descriptor more.
static void no_descriptors(void) {
	char *at;
	int fd = filled(&at);
	struct rlimit none = { 0, 0 };
	must(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
	say("read", wrong_by_reading(fd, 1));
	fill(at, 2);
	say("read again", wrong_by_reading(fd, 2));
}

// Nobody has it mapped, and its descriptor is a new one again and again, whoever looks for it.
static void shuffled(void) {
	char *at;
	int fd = filled(&at);
	must(munmap(at, bytes) == 0, "munmap");
	for (int i = 0; i < 2000000; i++) {
		int other = dup(fd);
		must(other >= 0, "dup");
		close(fd);
		fd = other;
	}
	sleep(1);
	say("mapped", wrong_in(view(fd), 1));
}

// Locked whole by the program itself, before it is mapped and after.
static void locked(void) {
	char *at;
	int fd = make(MFD_CLOEXEC), other = filled(&at);
	must(lockf(fd, F_LOCK, 0) == 0, "lockf");
	char *first = view(fd);
	fill(first, 1);
	say("locked", wrong_by_reading(fd, 1));
	must(lockf(fd, F_ULOCK, 0) == 0, "unlock");
	char *second = view(fd);
	fill(second, 2);
	say("unlocked", wrong_in(first, 2));
	say("other", wrong_by_reading(other, 1));
	char name[] = "/tmp/outpage-test-XXXXXX";
	fd = mkstemp(name);
	must(fd >= 0 && unlink(name) == 0 && ftruncate(fd, bytes) == 0 && lockf(fd, F_LOCK, 0) == 0, "a file");
	fill(view(fd), 1);
	say("of a disk", wrong_by_reading(fd, 1));
}

// Gets a name while it is paged, and is mapped by that; and one whose program ends at once.
static void named_late(void) {
	char path[32], name[64];
	for (int at_once = 0; at_once < 2; at_once++) {
		snprintf(name, sizeof name, "/dev/shm/outpage-late-%d-%d", getpid(), at_once);
		pid_t pid = fork();
		if (pid == 0) {
			int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
			must(fd >= 0 && ftruncate(fd, bytes) == 0, "a file");
			char *at = view(fd);
			fill(at, 1);
			if (at_once) {
				munmap(at, bytes);
				usleep(250000);
			}
			snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
			must(linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0, "linkat");
			if (at_once)
				_exit(0);
			int other = open(name, O_RDWR | O_CLOEXEC);
			must(other >= 0, "open");
			char *by_name = view(other);
			size_t wrong = wrong_in(by_name, 1);
			fill(by_name, 2);
			_exit(wrong + wrong_in(at, 2) + wrong_by_reading(other, 2) != 0);
		}
		wait_for(pid);
		sleep(at_once ? 2 : 0);
		int fd = open(name, O_RDWR | O_CLOEXEC);
		must(fd >= 0 && unlink(name) == 0, "by its name");
		say("by its name", wrong_by_reading(fd, at_once ? 1 : 2));
	}
}

// A file with a name is not changed by being mapped.
static void times(void) {
	char name[] = "/dev/shm/outpage-test-XXXXXX";
	int fd = mkstemp(name);
	must(fd >= 0 && write(fd, name, sizeof name) > 0, "a file");
	struct stat before, after;
	must(fstat(fd, &before) == 0, "fstat");
	usleep(20000);
	must(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED, "mmap");
	must(fstat(fd, &after) == 0 && unlink(name) == 0, "fstat");
	printf("%d\n", !memcmp(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim) && before.st_mode == after.st_mode && before.st_blocks == after.st_blocks);
}

// Moved, mapped and inherited by several while one of them reads it by its descriptor.
static void storm(void) {
	for (unsigned round = 1; round < 6; round++) {
		int fd = make(MFD_CLOEXEC);
		char *at = view(fd);
		fill(at, round);
		for (int child = 0; child < 4; child++) {
			if (fork() != 0)
				continue;
			size_t wrong = 0;
			for (int step = 0; step < 6; step++) {
				char *other = view(fd);
				char *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
				other = mremap(other, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, room);
				must(other != MAP_FAILED, "mremap");
				wrong += *(uint64_t *)(other + PAGE * step) != word(PAGE * step, round);
				if (child == 1 && step == 3)
					wrong += wrong_by_reading(fd, round);
				munmap(other, bytes);
			}
			_exit(wrong != 0);
		}
		int status;
		while (wait(&status) > 0)
			if (status != 0)
				printf("a child ended with %d\n", status);
		say("round", wrong_in(at, round));
		munmap(at, bytes);
		close(fd);
	}
}

// As a collector of Java's has its heap (ZGC of OpenJDK 17): reserved piece by piece, mapped three times where nothing may be touched before, given back and had
// again at another place.
static void collector(void) {
	enum { VIEWS = 3 };
	size_t piece = bytes / 8;
	char *views[VIEWS], *at;
	int fd = memfd_create("java_heap", MFD_CLOEXEC), punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	must(fd >= 0 && ftruncate(fd, bytes) == 0, "a file");
	must(fallocate(fd, 0, 0, piece) == 0 && fallocate(fd, punch, 0, piece) == 0, "tried");
	for (int v = 0; v < VIEWS; v++) {
		views[v] = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		must(views[v] != MAP_FAILED, "room");
	}
	for (size_t i = 0; i < bytes; i += piece) {
		must(fallocate(fd, 0, i, piece) == 0, "reserved");
		for (int v = 0; v < VIEWS; v++) {
			at = mmap(views[v] + i, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, i);
			must(at == views[v] + i, "mapped");
		}
	}
	size_t wrong = 0;
	for (unsigned round = 1; round < 4; round++) {
		fill(views[round % VIEWS], round);
		for (int v = 0; v < VIEWS; v++)
			wrong += wrong_in(views[v], round);
	}
	say("three views", wrong);
	for (int v = 0; v < VIEWS; v++) {
		at = mmap(views[v] + piece, piece, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		must(at == views[v] + piece, "unmapped");
	}
	must(fallocate(fd, punch, piece, piece) == 0, "given back");
	must(fallocate(fd, 0, piece, piece) == 0, "had again");
	for (int v = 0; v < VIEWS; v++) {
		at = mmap(views[v] + bytes, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, piece);
		must(at == views[v] + bytes, "mapped elsewhere");
	}
	say("new", not_zero(views[0] + bytes, 0, piece));
	memset(views[1] + bytes, 7, piece);
	say("same", memcmp(views[2] + bytes, views[0] + bytes, piece) != 0);
	say("others", wrong_from(views[0], 0, piece, 3) + wrong_from(views[2], 2 * piece, bytes, 3));
}

static const struct {
	const char *name;
	void (*run)(void);
} CASES[] = {
	{ "views", views }, { "reads", reads }, { "read", read_alone }, { "readv", read_vector }, { "bynumber", by_number },
	{ "writes", writes }, { "sendfile", sendfiles }, { "copy", copies }, { "splice", splices }, { "seek", seeks },
	{ "truncate", truncates }, { "punch", punches }, { "reserve", reserves }, { "private", privately }, { "small", small },
	{ "grow", grows }, { "again", again }, { "fork", forks }, { "outlive", outlives }, { "exec", executes }, { "send", sends },
	{ "sendfirst", sends_first }, { "proc", again_by_proc }, { "fixed", fixed }, { "move", moves }, { "arena", arena },
	{ "kernels", kernels }, { "threads", threads }, { "mode", modes }, { "advice", advice },
	{ "collector", collector }, { "rename", renamed }, { "link", linked },
	{ "remove", removes }, { "readonly", read_only_first }, { "path", by_path }, { "nofile", no_descriptors }, { "shuffle", shuffled },
	{ "storm", storm }, { "lock", locked }, { "late", named_late }, { "times", times },
};

int main(int argc, char **argv) {
	if (argc < 3)
		return 2;
	own_path = argv[0];
	bytes = strtoul(argv[1], NULL, 10) << 20;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 3) {
		int fd = atoi(argv[3]);
		if (!strcmp(argv[2], "inherit-read"))
			return wrong_by_reading(fd, 7) != 0;
		char *at = view(fd);
		size_t wrong = wrong_in(at, 1);
		fill(at, 7);
		return wrong != 0;
	}
	for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
		if (strcmp(argv[2], "all") && strcmp(argv[2], CASES[i].name))
			continue;
		printf("%s\n", CASES[i].name);
		pid_t pid = fork();
		if (pid == 0) {
			alarm(120);
			CASES[i].run();
			exit(0);
		}
		wait_for(pid);
	}
	return 0;
}
