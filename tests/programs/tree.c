/* Shared anonymous memory of several processes: every byte is written by one and read by another, and counters in it are raised by all at once.
 *
 * tree MIB PROCESSES ROUNDS SEED [move] [again]: MIB MiB are mapped shared, and PROCESSES processes forked. In each round each of them takes other pages, in an
 * order of its own, looks whether they hold what was written in the round before, by another process, and writes anew; and it adds one to counters in pages
 * of all. With `move` each process has its mapping moved between rounds. With `again` each process forks its successor after each round and ends.
 * At the end the first process looks at all of it, and at the sums of the counters. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };

/* In the first page. */
struct head {
	_Atomic uint64_t arrived, failed;
};

static uint64_t pages, processes, rounds, seed;

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint64_t word(uint64_t page, uint64_t round, uint64_t i)
{
	return mix(page << 32 ^ round << 16 ^ i ^ seed << 48);
}

static void meet(struct head *head, uint64_t round)
{
	head->arrived++;
	while (head->arrived < processes * round)
		usleep(200);
}

/* Word 0 is the counter. */
static int holds(const uint64_t *at, uint64_t page, uint64_t round)
{
	for (int i = 1; i < WORDS; i++)
		if (at[i] != (round ? word(page, round, i) : 0)) {
			fprintf(stderr, "page %lu word %d in round %lu: %lx\n", page, i, round, at[i]);
			return 0;
		}
	return 1;
}

static void one_round(char *memory, uint64_t me, uint64_t round)
{
	struct head *head = (struct head *)memory;
	uint64_t turn = mix(seed ^ me << 20 ^ round);
	for (uint64_t k = 0; k < pages; k++) {
		uint64_t page = 1 + (k + turn) % pages;
		uint64_t *at = (uint64_t *)(memory + page * PAGE);
		if (page % processes == (me + round) % processes) {
			if (!holds(at, page, round - 1))
				head->failed++;
			for (int i = 1; i < WORDS; i++)
				at[i] = word(page, round, i);
		}
		uint64_t any = 1 + mix(turn ^ k * 77) % pages;
		__atomic_fetch_add((uint64_t *)(memory + any * PAGE), 1, __ATOMIC_RELAXED);
	}
}

static char *moved(char *memory)
{
	size_t bytes = (pages + 1) * PAGE;
	char *to = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (to == MAP_FAILED || mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) {
		perror("mremap");
		exit(3);
	}
	return to;
}

static int await(void)
{
	int status, bad = 0;
	while (wait(&status) > 0 || errno == EINTR)
		bad |= status != 0;
	return bad;
}

static void life(char *memory, uint64_t me, int moves, int again)
{
	for (uint64_t round = 1; round <= rounds; round++) {
		one_round(memory, me, round);
		meet((struct head *)memory, round);
		if (moves)
			memory = moved(memory);
		if (again) {
			pid_t pid = fork();
			if (pid < 0) {
				perror("fork");
				exit(3);
			}
			if (pid > 0) {
				/* Every other one is gone before its successor has begun. */
				exit(round % 2 ? await() : 0);
			}
		}
	}
	exit(0);
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	int moves = 0, again = 0;
	pages = strtoul(argv[1], NULL, 0) * 256;
	processes = strtoul(argv[2], NULL, 0);
	rounds = strtoul(argv[3], NULL, 0);
	seed = strtoul(argv[4], NULL, 0);
	for (int i = 5; i < argc; i++) {
		moves |= !strcmp(argv[i], "move");
		again |= !strcmp(argv[i], "again");
	}
	char *memory = mmap(NULL, (pages + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 3;
	struct head *head = (struct head *)memory;
	for (uint64_t me = 0; me < processes; me++)
		if (fork() == 0)
			life(memory, me, moves, again);
	int bad = await();
	if (bad) {
		puts("a process ended badly");
		return 1;
	}
	/* Successors of those that are gone. */
	while (head->arrived < processes * rounds)
		usleep(1000);
	uint64_t sum = 0, wrong = head->failed;
	for (uint64_t page = 1; page <= pages; page++) {
		uint64_t *at = (uint64_t *)(memory + page * PAGE);
		wrong += !holds(at, page, rounds);
		sum += at[0];
	}
	wrong += sum != processes * rounds * pages;
	printf("%lu pages, %lu wrong, counted %lu of %lu\n", pages, wrong, sum, processes * rounds * pages);
	return wrong ? 1 : 0;
}
