// Files of RAM that are paged, used by their descriptors too: files MIB CASE...
//
// A case makes a file without a name, maps it, writes through MIB MiB and comes to it in another way: what it prints is what it prints without Outpage. "all" is
// every case, a process each.
#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

size_t bytes;
char *own_path;

void must(int ok, const char *what) {
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

int make(int flags) {
	int fd = memfd_create("case", flags);
	must(fd >= 0, "memfd_create");
	must(ftruncate(fd, bytes) == 0, "ftruncate");
	return fd;
}

char *view(int fd) {
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(at != MAP_FAILED, "mmap");
	return at;
}

uint64_t word(size_t i, unsigned round) {
	return (i + 1) * 0x9e3779b97f4a7c15u + round;
}

void fill(char *at, unsigned round) {
	for (size_t i = 0; i < bytes; i += PAGE / 4)
		*(uint64_t *)(at + i) = word(i, round);
}

size_t wrong_from(const char *at, size_t from, size_t to, unsigned round) {
	size_t wrong = 0;
	for (size_t i = from; i < to; i += PAGE / 4)
		wrong += *(const uint64_t *)(at + i) != word(i, round);
	return wrong;
}

size_t wrong_in(const char *at, unsigned round) {
	return wrong_from(at, 0, bytes, round);
}

size_t not_zero(const char *at, size_t from, size_t to) {
	size_t wrong = 0;
	for (size_t i = from; i < to; i++)
		wrong += at[i] != 0;
	return wrong;
}

size_t wrong_by_reading(int fd, unsigned round) {
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

void say(const char *name, size_t wrong) {
	printf("%s: %zu wrong\n", name, wrong);
}

int filled(char **at) {
	int fd = make(MFD_CLOEXEC);
	*at = view(fd);
	fill(*at, 1);
	return fd;
}

void wait_for(pid_t pid) {
	int status;
	must(waitpid(pid, &status, 0) == pid, "waitpid");
	if (status != 0)
		printf("a child ended with %d\n", status);
}

// In a process of its own, which has two minutes.
static void run(const struct file_case *one) {
	printf("%s\n", one->name);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(120);
		one->run();
		exit(0);
	}
	wait_for(pid);
}

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
	const struct file_case *all[] = { MAPPINGS, DESCRIPTORS, NAMES, PROCESSES };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		for (const struct file_case *one = all[i]; one->name; one++)
			if (!strcmp(argv[2], "all") || !strcmp(argv[2], one->name))
				run(one);
	return 0;
}
