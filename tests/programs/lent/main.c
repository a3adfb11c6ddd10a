/* What processes may do to shared anonymous memory that several of them have, one case a word: lent MIB CASE...
 *
 * Each case maps MIB MiB (or as it says), fills it so that most of it is paged out where there is a limit, does something to it, and prints a line that is
 * the same with and without a limit. */
#define _GNU_SOURCE
#include "lent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

size_t bytes;

char *shared(size_t len)
{
	char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) {
		perror("mmap");
		exit(3);
	}
	return at;
}

uint64_t word(uint64_t page, uint64_t salt)
{
	uint64_t x = page * 0x9e3779b97f4a7c15u ^ salt * 0xbf58476d1ce4e5b9u;
	return x ^ x >> 29;
}

void fill(char *at, size_t len, uint64_t salt)
{
	for (size_t o = 0; o < len; o += PAGE)
		for (int i = 0; i < PAGE / 8; i += 64)
			((uint64_t *)(at + o))[i] = word(o / PAGE, salt) + i;
}

long wrong(const char *at, size_t len, uint64_t salt)
{
	long bad = 0;
	for (size_t o = 0; o < len; o += PAGE)
		for (int i = 0; i < PAGE / 8; i += 64)
			bad += ((const uint64_t *)(at + o))[i] != word(o / PAGE, salt) + i;
	return bad;
}

long nonzero(const char *at, size_t len)
{
	long bad = 0;
	for (size_t o = 0; o < len; o += 8)
		bad += *(const uint64_t *)(at + o) != 0;
	return bad;
}

int status_of(pid_t pid)
{
	int status = -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

int last;

static void emptied(void)
{
	char *at = shared(bytes);
	fill(at, bytes, 1);
	size_t half = bytes / 2;
	CHILD(madvise(at, half, MADV_REMOVE));
	printf("emptied: %ld\n", nonzero(at, half));
	CHILD(_exit(nonzero(at, half) != 0));
	printf("emptied: child %d, then %lx\n", last, *(uint64_t *)(at + half) ^ word(half / PAGE, 1));
	fill(at, half, 3);
	CHILD(_exit(wrong(at, half, 3) != 0));
	printf("emptied: child %d, then %ld\n", last, wrong(at, half, 3));
	munmap(at, bytes);
}

static void kept(void)
{
	char *at = shared(bytes);
	fill(at, bytes, 1);
	CHILD(madvise(at, bytes, MADV_DONTNEED));
	printf("kept: %d", madvise(at, bytes, MADV_DONTNEED));
	printf(" %ld, free %d", wrong(at, bytes, 1), madvise(at, bytes, MADV_FREE) < 0 ? errno : 0);
	printf(", wipe %d\n", madvise(at, bytes, MADV_WIPEONFORK) < 0 ? errno : 0);
	munmap(at, bytes);
}

static void pieces(void)
{
	char *at = shared(bytes);
	fill(at, bytes, 1);
	size_t quarter = bytes / 4;
	munmap(at + quarter, quarter);
	char *in = mmap(at + quarter, quarter, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	printf("pieces: %d %ld", in == at + quarter, nonzero(in, quarter));
	fill(in, quarter, 9);
	CHILD(_exit(wrong(in, quarter, 9) || wrong(at, quarter, 1)));
	printf(" %d", last);
	/* Shared again, over what is private. */
	in = mmap(in, quarter, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	printf(" %ld", nonzero(in, quarter));
	CHILD(fill(in, quarter, 7));
	printf(" %d %ld %ld\n", last, wrong(in, quarter, 7), wrong(at, quarter, 1));
	munmap(at, bytes);
}

static void rights(void)
{
	char *at = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	mprotect(at, bytes, PROT_READ | PROT_WRITE);
	fill(at, bytes, 1);
	mprotect(at, bytes, PROT_READ);
	CHILD(mprotect(at, bytes, PROT_READ | PROT_WRITE); fill(at, bytes, 2));
	printf("rights: %d %ld", last, wrong(at, bytes, 2));
	CHILD(at[bytes / 2] = 1);
	printf(" %d\n", WTERMSIG(last));
	munmap(at, bytes);
}

static void nested(char *at, int depth)
{
	size_t part = bytes / 8;
	fill(at + depth * part, part, depth);
	if (depth == 5)
		return;
	CHILD(nested(at, depth + 1));
	if (last || wrong(at + (depth + 1) * part, part, depth + 1))
		_exit(9);
}

static void depth(void)
{
	char *at = shared(bytes);
	CHILD(nested(at, 0));
	long bad = 0;
	for (int i = 0; i < 6; i++)
		bad += wrong(at + i * (bytes / 8), bytes / 8, i);
	printf("depth: %d %ld\n", last, bad);
	munmap(at, bytes);
}

/* Who made the memory is gone before its child looks at it. */
static void orphans(void)
{
	int ends[2];
	if (pipe(ends))
		exit(3);
	CHILD(char *at = shared(bytes); fill(at, bytes, 4); if (fork() == 0) {
		while (getppid() != 1 && kill(getppid(), 0) == 0 && usleep(1000) == 0) {
			char name[64] = "";
			int fd = open("/proc/self/status", O_RDONLY);
			close(fd);
			(void)name;
			static int n;
			if (n++ > 200)
				break;
		}
		long bad = wrong(at, bytes, 4);
		fill(at, bytes, 5);
		bad += wrong(at, bytes, 5);
		if (write(ends[1], &bad, sizeof bad) < 0)
			_exit(1);
		_exit(0);
	});
	long bad = -1;
	if (read(ends[0], &bad, sizeof bad) < 0)
		exit(3);
	close(ends[0]);
	close(ends[1]);
	printf("orphans: %ld\n", bad);
}

static void many(void)
{
	long bad = 0;
	char *held[8] = {0};
	size_t lens[8] = {0};
	for (int i = 0; i < 40; i++) {
		size_t len = (2 << 20) + (i % 3) * 4096;
		char *at = shared(len);
		fill(at, len, i);
		CHILD(if (wrong(at, len, i)) _exit(1); fill(at, len, i + 1000));
		bad += last != 0;
		bad += wrong(at, len, i + 1000);
		if (held[i % 8])
			munmap(held[i % 8], lens[i % 8]);
		held[i % 8] = at;
		lens[i % 8] = len;
	}
	printf("many: %ld\n", bad);
	for (int i = 0; i < 8; i++)
		munmap(held[i], lens[i]);
}

static void sizes(void)
{
	char *at = shared(bytes);
	fill(at, bytes, 1);
	size_t half = bytes / 2;
	char *small = mremap(at, bytes, half, 0);
	printf("sizes: %d %ld", small == at, wrong(at, half, 1));
	/* What was cut off is there still. */
	char *large = mremap(at, half, bytes, MREMAP_MAYMOVE);
	printf(" %d %ld", large != MAP_FAILED, wrong(large, bytes, 1));
	CHILD(if (wrong(large, bytes, 1)) _exit(1); fill(large, bytes, 2));
	printf(" %d %ld", last, wrong(large, bytes, 2));
	large = mremap(large, bytes, bytes + half, MREMAP_MAYMOVE);
	CHILD(large[bytes + PAGE] = 1);
	printf(" %d %d\n", large != MAP_FAILED, WTERMSIG(last));
	munmap(large, bytes + half);
}

static void moves(void)
{
	char *at = shared(bytes);
	fill(at, bytes, 1);
	pid_t pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 10; i++) {
			/* A half each way. */
			char *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			memset(to, i, bytes / 8);
			char *b = mremap(at + bytes / 2, bytes / 2, bytes / 2, MREMAP_MAYMOVE | MREMAP_FIXED, to + bytes / 2);
			char *a = mremap(at, bytes / 2, bytes / 2, MREMAP_MAYMOVE | MREMAP_FIXED, to);
			if (a != to || b != to + bytes / 2 || wrong(to, bytes, 1))
				_exit(1);
			at = to;
		}
		fill(at, bytes, 2);
		_exit(0);
	}
	int status = status_of(pid);
	printf("moves: %d %ld\n", status, wrong(at, bytes, 2));
	munmap(at, bytes);
}

static void locked_memory(void)
{
	char *at = shared(2 << 20);
	int locked = mlock(at, 2 << 20);
	fill(at, 2 << 20, 1);
	CHILD(fill(at, 2 << 20, 2));
	printf("mlock: %d %d %ld %d\n", locked, last, wrong(at, 2 << 20, 2), munlock(at, 2 << 20));
	munmap(at, 2 << 20);
}

extern char **environ;
static void spawns(void)
{
	char *at = shared(bytes);
	fill(at, bytes, 1);
	int bad = 0;
	for (int i = 0; i < 8; i++) {
		pid_t pid;
		char *const argv[] = {"true", NULL};
		bad += posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) != 0 || status_of(pid) != 0;
		CHILD(execl("/bin/true", "true", NULL));
		bad += last != 0;
	}
	printf("spawns: %d %ld\n", bad, wrong(at, bytes, 1));
	munmap(at, bytes);
}

static void calls(void)
{
	char *at = shared(bytes), *to = shared(bytes);
	fill(at, bytes, 1);
	int ends[2];
	if (pipe(ends))
		exit(3);
	pid_t pid = fork();
	if (pid == 0) {
		for (size_t o = 0; o < bytes;) {
			ssize_t n = write(ends[1], at + o, bytes - o < 65536 ? bytes - o : 65536);
			if (n <= 0)
				_exit(1);
			o += n;
		}
		_exit(0);
	}
	size_t got = 0;
	while (got < bytes) {
		ssize_t n = read(ends[0], to + got, bytes - got);
		if (n <= 0)
			break;
		got += n;
	}
	printf("calls: %d %d", status_of(pid), memcmp(at, to, bytes) != 0);
	char *mine = malloc(bytes);
	struct iovec here = {mine, bytes}, there = {at, bytes};
	ssize_t n = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
	printf(" %d %d", n == (ssize_t)bytes, memcmp(mine, at, bytes) != 0);
	fill(mine, bytes, 6);
	n = process_vm_writev(getpid(), &here, 1, &there, 1, 0);
	printf(" %d %ld\n", n == (ssize_t)bytes, wrong(at, bytes, 6));
	free(mine);
	close(ends[0]);
	close(ends[1]);
	munmap(at, bytes);
	munmap(to, bytes);
}

static void direct(void)
{
	char name[] = "./lent-direct-XXXXXX";
	int fd = mkstemp(name);
	char *from = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fill(from, 8 << 20, 3);
	if (write(fd, from, 8 << 20) != 8 << 20)
		exit(3);
	fsync(fd);
	close(fd);
	char *at = shared(bytes);
	fill(at, bytes, 1);
	fd = open(name, O_RDONLY | O_DIRECT);
	unlink(name);
	long bad = fd < 0;
	for (int i = 0; i < 4 && fd >= 0; i++) {
		char *part = at + i * (bytes / 4) / PAGE * PAGE;
		CHILD(lseek(fd, 0, SEEK_SET); for (size_t o = 0; o < 4 << 20; o += 1 << 20) if (pread(fd, part + o, 1 << 20, o) != 1 << 20) _exit(1));
		bad += last != 0;
		bad += wrong(part, 4 << 20, 3);
	}
	printf("direct: %ld\n", bad);
	close(fd);
	munmap(from, 8 << 20);
	munmap(at, bytes);
}

static void notforked(void)
{
	char *at = shared(bytes);
	fill(at, bytes, 1);
	size_t half = bytes / 2;
	madvise(at, half, MADV_DONTFORK);
	CHILD(at[0] = 1);
	printf("notforked: %d", WTERMSIG(last));
	CHILD(at[half] += 1);
	madvise(at, half, MADV_DOFORK);
	printf(" %d", last);
	CHILD(at[0] += 1);
	printf(" %d %ld\n", last, wrong(at, bytes, 1));
	munmap(at, bytes);
}

/* What is mapped where something lay that no child was to have. */
static void again(void)
{
	char *at = shared(bytes);
	fill(at, bytes, 1);
	madvise(at, bytes, MADV_DONTFORK);
	munmap(at, bytes);
	char *next = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fill(next, bytes, 2);
	CHILD(if (wrong(next, bytes, 2)) _exit(1); fill(next, bytes, 3));
	printf("again: %d %ld\n", last, wrong(next, bytes, 3));
	munmap(next, bytes);
}

/* Advice for what is private and what is shared at once. */
static void mixed(void)
{
	size_t half = bytes / 2;
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	at = mmap(at + half, half, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) - half;
	fill(at, bytes, 1);
	printf("mixed: %d", madvise(at, bytes, 23 /* MADV_POPULATE_WRITE */));
	printf(" %ld", wrong(at, bytes, 1));
	madvise(at, bytes, MADV_DONTFORK);
	CHILD(at[0] = 1);
	printf(" %d", WTERMSIG(last));
	CHILD(at[half] = 1);
	printf(" %d", WTERMSIG(last));
	madvise(at, bytes, MADV_DOFORK);
	CHILD(_exit(wrong(at, bytes, 1) != 0));
	printf(" %d %ld\n", last, wrong(at, bytes, 1));
	munmap(at, bytes);
}

static void sparse(void)
{
	size_t len = (size_t)8 << 30;
	char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	long bad = at == MAP_FAILED;
	for (long i = 0; !bad && i < 4000; i++)
		*(uint64_t *)(at + word(i, 5) % (len / PAGE) * PAGE) += i;
	CHILD(for (long i = 0; !bad && i < 4000; i++) *(uint64_t *)(at + word(i, 5) % (len / PAGE) * PAGE) -= i);
	for (long i = 0; !bad && i < 4000; i++)
		bad += *(uint64_t *)(at + word(i, 5) % (len / PAGE) * PAGE) != 0;
	printf("sparse: %ld\n", bad);
	munmap(at, len);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"emptied", emptied}, {"kept", kept}, {"pieces", pieces}, {"rights", rights}, {"races", races}, {"locks", locks},
	{"futexes", futexes}, {"depth", depth}, {"orphans", orphans}, {"many", many}, {"sizes", sizes}, {"moves", moves},
	{"mlock", locked_memory}, {"spawns", spawns}, {"calls", calls}, {"direct", direct}, {"notforked", notforked},
	{"again", again}, {"mixed", mixed}, {"robust", robust}, {"killed", killed}, {"sparse", sparse},
};

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	bytes = strtoul(argv[1], NULL, 0) << 20;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 2; i < argc; i++)
		for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
			if (!strcmp(argv[i], cases[k].name) || !strcmp(argv[i], "all"))
				cases[k].run();
	return 0;
}
