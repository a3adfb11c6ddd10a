/*
 * The guest's program: writes its memory in ascending passes, as sysbench's memory test does, and verifies every word of a page before it
 * writes the next pass over it. Or exhausts memory.
 *
 *   workload pass MIB PASSES [PAUSE_MS]   exit code 0 when every word was as it was written; PAUSE_MS rests between passes
 *   workload reread MIB PASSES            writes once, then reads and verifies PASSES times
 *   workload cold MIB_COLD MIB PASSES     writes MIB_COLD once and leaves it, runs passes over MIB, then verifies what it left
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define WORDS (PAGE / sizeof(uint64_t))

/* What word `i` of page `page` holds after `pass`: no two are equal, none is zero. */
static uint64_t value(uint64_t page, uint64_t i, uint64_t pass)
{
	uint64_t x = (page << 20 | i << 8 | pass) + 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	return (x ^ x >> 27) | 1;
}

static uint64_t *memory(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return at;
}

static void write_all(uint64_t *at, size_t bytes, uint64_t pass)
{
	for (uint64_t page = 0; page < bytes / PAGE; page++)
		for (uint64_t i = 0; i < WORDS; i++)
			at[page * WORDS + i] = value(page, i, pass);
}

static void verify_page(const uint64_t *at, uint64_t page, uint64_t pass)
{
	for (uint64_t i = 0; i < WORDS; i++)
		if (at[page * WORDS + i] != value(page, i, pass)) {
			printf("WRONG page %llu word %llu pass %llu\n", (unsigned long long)page,
			       (unsigned long long)i, (unsigned long long)pass);
			exit(1);
		}
}

static void verify_all(const uint64_t *at, size_t bytes, uint64_t pass)
{
	for (uint64_t page = 0; page < bytes / PAGE; page++)
		verify_page(at, page, pass);
}

static void pass(uint64_t *at, size_t bytes, uint64_t pass)
{
	for (uint64_t page = 0; page < bytes / PAGE; page++) {
		verify_page(at, page, pass - 1);
		for (uint64_t i = 0; i < WORDS; i++)
			at[page * WORDS + i] = value(page, i, pass);
	}
}

static size_t mib(const char *text)
{
	return strtoul(text, NULL, 10) << 20;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";

	if (count >= 4 && strcmp(what, "pass") == 0) {
		size_t bytes = mib(words[2]);
		unsigned long passes = strtoul(words[3], NULL, 10), pause = count > 4 ? strtoul(words[4], NULL, 10) : 0;
		uint64_t *at = memory(bytes);

		write_all(at, bytes, 0);
		for (unsigned long n = 1; n < passes; n++) {
			usleep(pause * 1000);
			pass(at, bytes, n);
		}
		verify_all(at, bytes, passes - 1);
	} else if (count == 4 && strcmp(what, "reread") == 0) {
		size_t bytes = mib(words[2]);
		uint64_t *at = memory(bytes);

		write_all(at, bytes, 0);
		for (unsigned long n = strtoul(words[3], NULL, 10); n > 0; n--)
			verify_all(at, bytes, 0);
	} else if (count == 5 && strcmp(what, "cold") == 0) {
		size_t cold = mib(words[2]), bytes = mib(words[3]);
		uint64_t *left = memory(cold), *at = memory(bytes);

		write_all(left, cold, 7);
		write_all(at, bytes, 0);
		for (unsigned long n = 1; n < strtoul(words[4], NULL, 10); n++)
			pass(at, bytes, n);
		verify_all(left, cold, 7);
	} else {
		fprintf(stderr, "usage: workload pass MIB PASSES [PAUSE_MS] | reread MIB PASSES | cold MIB_COLD MIB PASSES\n");
		return 64;
	}
	puts("VERIFIED");
	return 0;
}
