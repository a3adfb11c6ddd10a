/* Threads and processes that lock, wait and are killed in memory that they share. */
#define _GNU_SOURCE
#include "lent.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *race_at;
static void *adds(void *arg)
{
	uint64_t x = (uintptr_t)arg;
	for (int i = 0; i < 6000; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		__atomic_fetch_add((uint64_t *)(race_at + (x >> 33) % (bytes / PAGE) * PAGE), 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

void races(void)
{
	race_at = shared(bytes);
	fill(race_at, bytes, 1);
	for (size_t o = 0; o < bytes; o += PAGE)
		*(uint64_t *)(race_at + o) = 0;
	pid_t pids[3];
	for (int p = 0; p < 3; p++)
		if ((pids[p] = fork()) == 0) {
			pthread_t t[3];
			for (long i = 0; i < 3; i++)
				pthread_create(&t[i], NULL, adds, (void *)(p * 8 + i + 1));
			/* Forks in the midst. */
			for (int i = 0; i < 5; i++)
				CHILD(adds((void *)99));
			for (int i = 0; i < 3; i++)
				pthread_join(t[i], NULL);
			_exit(0);
		}
	for (int p = 0; p < 3; p++)
		status_of(pids[p]);
	uint64_t sum = 0;
	for (size_t o = 0; o < bytes; o += PAGE)
		sum += *(uint64_t *)(race_at + o);
	printf("races: %lu\n", sum);
	munmap(race_at, bytes);
}

struct locked {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	long turn;
};

void locks(void)
{
	char *at = shared(bytes);
	struct locked *s = (struct locked *)(at + bytes / 2);
	pthread_mutexattr_t ma;
	pthread_condattr_t ca;
	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
	pthread_condattr_init(&ca);
	pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&s->lock, &ma);
	pthread_cond_init(&s->cond, &ca);
	pid_t pids[3];
	for (long me = 0; me < 3; me++)
		if ((pids[me] = fork()) == 0) {
			for (int i = 0; i < 30; i++) {
				pthread_mutex_lock(&s->lock);
				while (s->turn % 3 != me)
					pthread_cond_wait(&s->cond, &s->lock);
				s->turn++;
				pthread_cond_broadcast(&s->cond);
				pthread_mutex_unlock(&s->lock);
				/* Pushes the page out. */
				for (size_t o = 0; o < bytes; o += 4 * PAGE)
					if (o != bytes / 2)
						at[o + 64 * me] = (char)i;
			}
			_exit(0);
		}
	for (int p = 0; p < 3; p++)
		status_of(pids[p]);
	printf("locks: %ld\n", s->turn);
	munmap(at, bytes);
}

void futexes(void)
{
	char *at = shared(bytes);
	uint32_t *word = (uint32_t *)(at + bytes / 3 / PAGE * PAGE);
	pid_t pid = fork();
	if (pid == 0) {
		while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0)
			syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
		_exit(7);
	}
	usleep(50000);
	fill(at + bytes / 2, bytes / 2, 1);
	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
	printf("futexes: %d\n", WEXITSTATUS(status_of(pid)));
	munmap(at, bytes);
}

static void *sleeps(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* Holders of mutexes that a process's end looks at are killed while the pages are out: these stay as they are. */
void robust(void)
{
	enum { EACH = 16 * PAGE };
	char *at = shared(bytes);
	fill(at, bytes, 1);
	pthread_mutexattr_t ma;
	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST);
	/* Behind the first word that is looked at. */
	for (size_t o = 0; o < bytes; o += EACH)
		pthread_mutex_init((pthread_mutex_t *)(at + o + 64), &ma);
	for (int i = 0; i < 8; i++) {
		int ends[2];
		if (pipe(ends))
			exit(3);
		pid_t pid = fork();
		if (pid == 0) {
			pthread_t threads[8];
			for (int t = 0; t < 8; t++)
				pthread_create(&threads[t], NULL, sleeps, NULL);
			for (size_t o = i % 3 * EACH; o < bytes; o += 3 * EACH)
				pthread_mutex_trylock((pthread_mutex_t *)(at + o + 64));
			for (int round = 0; round < 3; round++)
				for (size_t o = 0; o < bytes; o += PAGE)
					if (o % EACH)
						at[o + 256]++;
			if (write(ends[1], "", 1) < 0)
				_exit(1);
			pause();
		}
		char byte;
		if (read(ends[0], &byte, 1) != 1)
			exit(3);
		close(ends[0]);
		close(ends[1]);
		kill(pid, SIGKILL);
		status_of(pid);
	}
	printf("robust: %ld\n", wrong(at, bytes, 1));
	munmap(at, bytes);
}

void killed(void)
{
	char *at = shared(bytes);
	fill(at, bytes, 1);
	for (int i = 0; i < 6; i++) {
		pid_t pid = fork();
		if (pid == 0)
			for (;;) {
				wrong(at, bytes, 1);
				fill(at, bytes, 1);
			}
		usleep(20000 * (i % 4));
		kill(pid, SIGKILL);
		status_of(pid);
	}
	printf("killed: %ld\n", wrong(at, bytes, 1));
	munmap(at, bytes);
}
