// Threads in real time (SCHED_FIFO) on one CPU, of which one keeps it, but for its turns, until another one has touched all memory.
//
// fifo: set by sched_setscheduler after paging began. Of Outpage's threads one is scheduled so then; natively there are none.
#include "hostile.h"
#include <dirent.h>

static volatile int verified;

static void *turn(void *nothing) {
    while (!verified) sched_yield();
    return nothing;
}

static void *look(void *nothing) {
    verify_all("in real time");
    verified = 1;
    return nothing;
}

// Whether a thread of Outpage's is in real time, or there is none.
static int keeps_up(void) {
    DIR *tasks = opendir("/proc/self/task");
    int others = 0, urgent = 0;
    NEED(tasks);
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], name[16] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        int is_pager = file && fgets(name, sizeof name, file) && !strncmp(name, "outpage", 7);
        others += is_pager;
        urgent += is_pager && sched_getscheduler(atoi(task->d_name)) == SCHED_FIFO;
        if (file) fclose(file);
    }
    closedir(tasks);
    return urgent || !others;
}

int main(int count, char **arguments) {
    begin(count, arguments);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    if (sched_setaffinity(0, sizeof one, &one)) missing("CPU 0");
    arena(arguments);
    struct sched_param param = {.sched_priority = 10};
    if (sched_setscheduler(0, SCHED_FIFO, &param)) missing("SCHED_FIFO");
    pthread_t turns, looks;
    NEED(!pthread_create(&turns, 0, turn, 0) && !pthread_create(&looks, 0, look, 0));
    NEED(!pthread_join(looks, 0) && !pthread_join(turns, 0));
    NEED(keeps_up());
    param.sched_priority = 0;
    NEED(!sched_setscheduler(0, SCHED_OTHER, &param));
    return done();
}
