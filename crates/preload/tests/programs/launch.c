// Executes its arguments in every way; returns the last one's exit code.
#include "check.h"
#include <fcntl.h>
#include <spawn.h>

extern char **environ;

int main(int count, char **arguments) {
    char **program = arguments + 1;
    pid_t pid;
    CHECK(count > 1);
    CHECK(posix_spawn(&pid, program[0], NULL, NULL, program, environ) == 0);
    CHECK(exit_code_of(pid) == 0);
    if ((pid = vfork()) == 0) {
        execveat(AT_FDCWD, program[0], program, environ, 0);
        _exit(90);
    }
    CHECK(exit_code_of(pid) == 0);
    if ((pid = fork()) == 0) {
        syscall(SYS_execve, program[0], program, environ);
        _exit(91);
    }
    CHECK(exit_code_of(pid) == 0);
    execv(program[0], program);
    return 92;
}
