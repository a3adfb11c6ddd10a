// Forks while its memory does not fit, so that each process's page references are known.
//
//   forks MIB CHILDREN
//
// Fills MIB of memory, page by page, and forks. Each process touches the pages of its own number, as many
// apart as there are numbers, upwards, writes every other one of them, and verifies what it finds. CHILDREN
// of them (numbers from 5 on) then end by exit; beside them number 1 ends by SIGKILL, 2 forks 3, which ends by _exit,
// 4 executes "forks MIB 0", and one that has no number touches nothing. The parent, number 0, touches its
// pages while they live. With no CHILDREN there are no forks at all. A line "NUMBER PID" on standard output for
// each process, the first of them with the page number of the memory and the distance. Exit code 1: something
// else was found. 2: a call failed.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };
static size_t pages, apart;
static char *memory;

#define NEED(condition) ((condition) ? (void)0 : need(#condition, __LINE__))
static void need(const char *what, int line) {
    dprintf(2, "forks: line %d: %s\n", line, what);
    _exit(2);
}

static uint64_t *word(size_t page) { return (uint64_t *)(memory + page * PAGE); }

static void touch(size_t number) {
    dprintf(1, "%zu %d\n", number, (int)getpid());
    size_t turn = 0;
    for (size_t page = number; page < pages; page += apart, turn++) {
        // What is written is written first: a page that does not leave again tells of its fault only.
        if (turn % 2) *(volatile uint64_t *)word(page) = ~page;
        if (*(volatile uint64_t *)(word(page) + 1) != page + 1) _exit(1);
    }
}

static pid_t child(void) {
    pid_t pid = fork();
    NEED(pid >= 0);
    return pid;
}

static void await(pid_t pid, int expected) {
    int status;
    NEED(waitpid(pid, &status, 0) == pid);
    if (status != expected) {
        dprintf(2, "forks: process %d ended with %x\n", (int)pid, (unsigned)status);
        exit(1);
    }
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    size_t children = strtoul(arguments[2], 0, 10), numbers = 5 + children;
    pages = strtoul(arguments[1], 0, 10) * (1048576 / PAGE), apart = numbers;
    memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(memory != MAP_FAILED);
    for (size_t page = 0; page < pages; page++) word(page)[0] = word(page)[1] = page + 1;
    if (!children) return 0;
    dprintf(1, "%zu %zu\n", (size_t)memory / PAGE, apart);

    pid_t pids[numbers];
    for (size_t number = 1; number < numbers; number++) {
        if (number == 3) continue;
        if ((pids[number] = child())) continue;
        touch(number);
        if (number == 1) kill(getpid(), SIGKILL);
        if (number == 2) {
            pid_t grandchild = child();
            if (!grandchild) {
                touch(3);
                _exit(0);
            }
            await(grandchild, 0);
        }
        if (number == 4) {
            execl(arguments[0], arguments[0], arguments[1], "0", (char *)0);
            need("execl", __LINE__);
        }
        exit(0);
    }
    pids[3] = child();
    if (!pids[3]) _exit(0);
    touch(0);
    for (size_t number = 1; number < numbers; number++) await(pids[number], number == 1 ? SIGKILL : 0);
    return 0;
}
