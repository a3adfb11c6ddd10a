/* What the cases have in common. */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PAGE = 4096 };

/* The size that the command line names. */
extern size_t bytes;

/* So many bytes of shared anonymous memory. */
char *shared(size_t len);
/* What belongs at the beginning of a page, and in how many places it is not there. */
uint64_t word(uint64_t page, uint64_t salt);
void fill(char *at, size_t len, uint64_t salt);
long wrong(const char *at, size_t len, uint64_t salt);
/* How many bytes are not zero. */
long nonzero(const char *at, size_t len);
/* How a child ended; and the last one that `CHILD` made. */
int status_of(pid_t pid);
extern int last;

#define CHILD(what)                     \
	do {                            \
		pid_t pid_ = fork();    \
		if (pid_ == 0) {        \
			what;           \
			_exit(0);       \
		}                       \
		if (pid_ < 0) {         \
			perror("fork"); \
			exit(3);        \
		}                       \
		last = status_of(pid_); \
	} while (0)

/* Cases of locks.c. */
void races(void);
void locks(void);
void futexes(void);
void robust(void);
void killed(void);
