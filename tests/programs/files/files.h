// What the cases have in common.
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE 4096

struct file_case {
	const char *name;
	void (*run)(void);
};

// Those of each file here; the last of them has no name.
extern const struct file_case MAPPINGS[], DESCRIPTORS[], NAMES[], PROCESSES[];

// The size of a file, and the path of this program.
extern size_t bytes;
extern char *own_path;

// Ends the program, and says why, unless `ok`.
void must(int ok, const char *what);
// A memfd of that size.
int make(int flags);
// All of a file, mapped.
char *view(int fd);
// A memfd that is mapped and filled for the first time.
int filled(char **at);

uint64_t word(size_t i, unsigned round);
// Each page gets four words that tell which page it is, and which round.
void fill(char *at, unsigned round);
// How many of these words are others.
size_t wrong_from(const char *at, size_t from, size_t to, unsigned round);
size_t wrong_in(const char *at, unsigned round);
// The same, read by the descriptor.
size_t wrong_by_reading(int fd, unsigned round);
// How many bytes are not zero.
size_t not_zero(const char *at, size_t from, size_t to);

void say(const char *name, size_t wrong);
// A child is to end well.
void wait_for(pid_t pid);
