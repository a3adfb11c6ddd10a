// Files that are read, written, copied and sized by their descriptors.
#define _GNU_SOURCE
#include "files.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

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
	// With a sticky bit of the program's own.
	int own = make(MFD_CLOEXEC);
	must(fchmod(own, 01600) == 0, "fchmod");
	must(syscall(SYS_write, own, buffer, 8) == 8 && syscall(SYS_pread64, own, buffer + 8, 8, 0) == 8, "write");
	fill(view(own), 3);
	say("sticky", memcmp(buffer, buffer + 8, 8) + wrong_by_reading(own, 3));
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

static void privately(void) {
	char *at;
	int fd = filled(&at);
	char *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	must(own != MAP_FAILED, "mmap");
	say("private", wrong_in(own, 1));
	fill(own, 2);
	say("shared", wrong_in(at, 1));
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

const struct file_case DESCRIPTORS[] = {
	{ "reads", reads },
	{ "read", read_alone },
	{ "readv", read_vector },
	{ "bynumber", by_number },
	{ "writes", writes },
	{ "sendfile", sendfiles },
	{ "copy", copies },
	{ "splice", splices },
	{ "seek", seeks },
	{ "truncate", truncates },
	{ "private", privately },
	{ "readonly", read_only_first },
	{ "nofile", no_descriptors },
	{ "shuffle", shuffled },
	{ NULL, NULL },
};
