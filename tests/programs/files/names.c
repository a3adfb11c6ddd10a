// Files that get or lose a name, that are opened, sized and locked by it, and those that stay with the kernel.
#define _GNU_SOURCE
#include "files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void modes(void) {
	char *at;
	int fd = filled(&at);
	struct stat stat;
	must(fchmod(fd, 0600) == 0, "fchmod");
	say("read", wrong_by_reading(fd, 1));
	must(fstat(fd, &stat) == 0, "fstat");
	printf("mode %o links %d\n", stat.st_mode, (int)stat.st_nlink);
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

const struct file_case NAMES[] = {
	{ "proc", again_by_proc },
	{ "arena", arena },
	{ "kernels", kernels },
	{ "mode", modes },
	{ "rename", renamed },
	{ "link", linked },
	{ "path", by_path },
	{ "lock", locked },
	{ "late", named_late },
	{ "times", times },
	{ NULL, NULL },
};
