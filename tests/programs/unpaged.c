/* Has memory that no pager takes, until the end of its standard input.
 *
 *   unpaged shared|stack|heap MIB
 *   unpaged file MIB PATH
 *
 * "shared" is anonymous, "file" a private mapping of PATH, which has MIB, every page changed. Prints "ready". */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void wait_for_end(void)
{
	char byte;

	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
}

static void __attribute__((noinline)) deep(size_t kib)
{
	volatile char frame[64 << 10];

	memset((char *)frame, 1, sizeof frame);
	if (kib > 64)
		deep(kib - 64);
	else
		wait_for_end();
	frame[0] = frame[1];
}

static void touch(char *memory, size_t bytes)
{
	size_t at;

	if (memory == MAP_FAILED || !memory)
		exit(2);
	for (at = 0; at < bytes; at += 4096)
		memory[at] = 1;
	wait_for_end();
}

int main(int count, char **words)
{
	size_t mib = count > 2 ? atoi(words[2]) : 0, bytes = mib << 20;
	int both = PROT_READ | PROT_WRITE;

	if (!mib)
		return 2;
	if (!strcmp(words[1], "shared"))
		touch(mmap(NULL, bytes, both, MAP_SHARED | MAP_ANONYMOUS, -1, 0), bytes);
	else if (!strcmp(words[1], "heap"))
		touch(malloc(bytes), bytes);
	else if (!strcmp(words[1], "file") && count > 3)
		touch(mmap(NULL, bytes, both, MAP_PRIVATE, open(words[3], O_RDWR), 0), bytes);
	else if (!strcmp(words[1], "stack"))
		deep(mib << 10);
	else
		return 2;
	return 0;
}
