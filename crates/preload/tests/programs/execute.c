// Programs that are started with environments that lack the shim.
#include "check.h"
#include <fcntl.h>
#include <spawn.h>

// What the child sees: argument 2 is the expected start of LD_PRELOAD's other part, or "-".
static int look(const char *other) {
    const char *preload = getenv("LD_PRELOAD"), *memory = getenv("OUTPAGE_MEMORY");
    CHECK(preload && memory);
    const char *colon = strchr(preload, ':');
    if (strcmp(other, "-") == 0)
        CHECK(colon == NULL);
    else
        CHECK(colon && strcmp(colon + 1, other) == 0);
    // The shim is in: libc's mmap begins with a jump.
    CHECK(*(unsigned char *)mmap == 0xe9 || ((unsigned char *)mmap)[4] == 0xe9);
    return getenv("KEPT") ? 12 : 11;
}

static pid_t forked(void) { return fork(); }

int main(int count, char **arguments) {
    if (count == 3)
        return look(arguments[2]);
    char *self = arguments[0];
    char *plain[] = {self, "look", "-", NULL}, *joined[] = {self, "look", "/lib/none.so", NULL};
    char *nothing[] = {NULL}, *kept[] = {"KEPT=1", NULL};
    char *other[] = {"A=b", "LD_PRELOAD=/lib/none.so", "KEPT=1", NULL};
    pid_t pid;

    CHECK(posix_spawn(&pid, self, NULL, NULL, plain, nothing) == 0);
    CHECK(exit_code_of(pid) == 11);
    CHECK(posix_spawnp(&pid, self, NULL, NULL, plain, kept) == 0);
    CHECK(exit_code_of(pid) == 12);
    CHECK(posix_spawn(&pid, self, NULL, NULL, joined, other) == 0);
    CHECK(exit_code_of(pid) == 12);
    if ((pid = forked()) == 0)
        execve(self, plain, NULL);
    CHECK(exit_code_of(pid) == 11);
    if ((pid = vfork()) == 0)
        execve(self, plain, nothing);
    CHECK(exit_code_of(pid) == 11);
    if ((pid = forked()) == 0)
        execle(self, self, "look", "-", (char *)NULL, kept);
    CHECK(exit_code_of(pid) == 12);
    if ((pid = forked()) == 0)
        fexecve(open(self, O_RDONLY), plain, nothing);
    CHECK(exit_code_of(pid) == 11);
    if ((pid = forked()) == 0)
        execveat(AT_FDCWD, self, plain, kept, 0);
    CHECK(exit_code_of(pid) == 12);
    if ((pid = forked()) == 0)
        syscall(SYS_execve, self, plain, nothing);
    CHECK(exit_code_of(pid) == 11);

    // More entries than fit on a stack.
    enum { MANY = 5000 };
    char **many = calloc(MANY + 2, sizeof *many);
    for (int i = 0; i < MANY; i++)
        CHECK(asprintf(&many[i], "V%d=x", i) > 0);
    many[MANY] = "KEPT=1";
    CHECK(posix_spawn(&pid, self, NULL, NULL, plain, many) == 0);
    CHECK(exit_code_of(pid) == 12);

    unsetenv("LD_PRELOAD");
    unsetenv("OUTPAGE_MEMORY");
    char command[4096];
    snprintf(command, sizeof command, "%s look -", self);
    CHECK(WEXITSTATUS(system(command)) == 11);
    return 0;
}
