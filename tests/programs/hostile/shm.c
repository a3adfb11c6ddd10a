// System V shared memory over a hundred pages of memory that is paged, then a fork.
//
// libc, number, raw: who calls shmat with SHM_REMAP. detach: shmdt, and memory is mapped there anew.
#include "hostile.h"
#include <sys/shm.h>

enum { FROM = 1000, END = 1100 };

static char *attach(int id) {
    if (is("number")) return (char *)syscall(SYS_shmat, id, at(FROM), SHM_REMAP);
    if (is("raw")) return (char *)raw(SYS_shmat, id, (long)at(FROM), SHM_REMAP, 0, 0, 0);
    return shmat(id, at(FROM), SHM_REMAP);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    arena(arguments);
    int id = shmget(IPC_PRIVATE, (END - FROM) * PAGE, IPC_CREAT | 0600);
    NEED(id >= 0);
    char *attached = attach(id);
    NEED(!shmctl(id, IPC_RMID, 0));
    NEED(attached == at(FROM));
    zeroed(FROM, END);
    verify(FROM, END, "shared memory");
    for (size_t i = FROM; i < END; i++) put(i);
    verify_all("attached");
    pid_t pid = fork();
    if (!pid) {
        verify_all("child");
        put(FROM);
        _exit(0);
    }
    need_right(pid);
    // The child wrote into what both share.
    generation[FROM]++;
    verify_all("parent");
    if (is("detach")) {
        NEED(!shmdt(at(FROM)));
        NEED(faults(at(FROM)) && faults(at(END - 1)));
        NEED(mmap(at(FROM), (END - FROM) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                  0) == at(FROM));
        zeroed(FROM, END);
        verify_all("detached");
        for (size_t i = FROM; i < END; i++) put(i);
        fork_and_verify();
    }
    return done();
}
