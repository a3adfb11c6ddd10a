// Files that are mapped several times, in part, moved, over something else, emptied, reserved and given back.
#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

const struct file_case MAPPINGS[] = {
	{ "views", views },
	{ "punch", punches },
	{ "reserve", reserves },
	{ "small", small },
	{ "grow", grows },
	{ "again", again },
	{ "fixed", fixed },
	{ "move", moves },
	{ "threads", threads },
	{ "advice", advice },
	{ "collector", collector },
	{ "remove", removes },
	{ NULL, NULL },
};
