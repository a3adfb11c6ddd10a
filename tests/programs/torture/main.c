// Writes and verifies memory in every way a program can: a pager below must never lose a byte.
//
//   torture [-s SECONDS] [-t THREADS] [-m MIB] [-r SEED] [-d DIR] [-o OPERATION,...]
//
// Built of every file in this directory. Exit code 0: every byte was right. 1: a byte was wrong, told on standard error.
// 2: a call failed. Prints how often each operation was drawn, and how often this kernel or user could not do it.
#include "torture.h"

static double seconds = 5;
static int threads = 4;
static size_t mib = 64;
static uint64_t seed = 1;
static const char *chosen;

const char *directory = "/var/tmp", *self_path;
pthread_rwlock_t descriptors = PTHREAD_RWLOCK_INITIALIZER;
__thread int not_here;

static Worker workers[64];
static Region shared[SHARED];
static double end_at;

static char bss[6 << 20] __attribute__((aligned(4096)));
static char data[2 << 20] __attribute__((aligned(4096))) = {1};

static struct {
    const char *name;
    Operation *act;
    int weight; // of all the weights chosen
    uint64_t count, not_here;
} operations[] = {
    {"rw", op_rw, 100, 0, 0},                {"dontneed", op_dontneed, 20, 0, 0},     {"free", op_free, 20, 0, 0},
    {"advise", op_advise, 20, 0, 0},         {"remap", op_remap, 10, 0, 0},           {"mremap", op_mremap, 20, 0, 0},
    {"dontunmap", op_dontunmap, 10, 0, 0},   {"protect", op_protect, 20, 0, 0},       {"mlock", op_mlock, 5, 0, 0},
    {"guard", op_guard, 10, 0, 0},           {"process", op_process, 10, 0, 0},       {"rawmap", op_rawmap, 10, 0, 0},
    {"rawmove", op_rawmove, 10, 0, 0},       {"rawdiscard", op_rawdiscard, 10, 0, 0}, {"rawprotect", op_rawprotect, 10, 0, 0},
    {"rawtrim", op_rawtrim, 10, 0, 0},       {"rawlock", op_rawlock, 5, 0, 0},        {"shm", op_shm, 5, 0, 0},                {"memfd", op_memfd, 5, 0, 0},
    {"uffd", op_uffd, 5, 0, 0},              {"seal", op_seal, 2, 0, 0},              {"fork", op_fork, 2, 0, 0},
    {"orphan", op_orphan, 1, 0, 0},          {"exec", op_exec, 1, 0, 0},              {"spawn", op_spawn, 1, 0, 0},
    {"clone3", op_clone3, 2, 0, 0},          {"clone", op_clone, 2, 0, 0},            {"rawfork", op_rawfork, 1, 0, 0},
    {"vfork", op_vfork, 2, 0, 0},            {"vmchild", op_vmchild, 2, 0, 0},        {"outlive", op_outlive, 1, 0, 0},
    {"wipe", op_wipe, 2, 0, 0},              {"dontfork", op_dontfork, 2, 0, 0},      {"namespace", op_namespace, 1, 0, 0},
    {"seccomp", op_seccomp, 1, 0, 0},        {"confine", op_confine, 1, 0, 0},        {"pipe", op_pipe, 20, 0, 0},
    {"file", op_file, 5, 0, 0},              {"direct", op_direct, 5, 0, 0},          {"vmsplice", op_vmsplice, 5, 0, 0},
    {"peek", op_peek, 10, 0, 0},             {"closefrom", op_closefrom, 2, 0, 0},    {"signal", op_signal, 20, 0, 0},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int is_chosen(const char *name) {
    size_t length = strlen(name);
    for (const char *p = chosen; p && (p = strstr(p, name)); p++)
        if ((p == chosen || p[-1] == ',') && (!p[length] || p[length] == ',')) return 1;
    return !chosen;
}

static void one_operation(Worker *w, int total) {
    int pick = below(w, total), i = 0;
    while (pick >= operations[i].weight) pick -= operations[i++].weight;
    int other = below(w, 4) == 0;
    Region *r = other ? &shared[below(w, SHARED)] : &w->own[below(w, OWN)];
    if (other) pthread_mutex_lock(&r->lock);
    not_here = 0;
    operations[i].act(w, r);
    if (other) pthread_mutex_unlock(&r->lock);
    __atomic_fetch_add(not_here ? &operations[i].not_here : &operations[i].count, 1, __ATOMIC_RELAXED);
}

static void *work(void *argument) {
    Worker *w = argument;
    int total = 0;
    use_other_stack();
    for (int i = 0; i < OPERATIONS; i++) total += operations[i].weight;
    for (int i = 0; i < OWN; i++)
        for (size_t k = 0; k < w->own[i].pages; k++) put(w, &w->own[i], k);
    while (now() < end_at) one_operation(w, total);
    for (int i = 0; i < OWN; i++) check_region(&w->own[i], "at the end");
    return 0;
}

static void make_fixed(Region *r, char *base, size_t pages, uint64_t first_word) {
    make(r, pages);
    NEED(!munmap(r->base, pages * PAGE));
    r->base = base, r->pages_max = pages, r->fixed = 1;
    NEED(*(uint64_t *)base == first_word);
    *(uint64_t *)base = 0;
}

static void set_up(void) {
    size_t pages = mib * 256, fixed = sizeof bss / PAGE + sizeof data / PAGE;
    size_t each = (pages > 2 * fixed ? pages - fixed : pages / 2) / (threads * OWN + SHARED - 1);
    if (each < 48) each = 48;
    for (int t = 0; t < threads; t++) {
        workers[t].random = mix(seed * 1000 + t);
        for (int i = 0; i < OWN; i++) make(&workers[t].own[i], each);
    }
    for (int i = 2; i < SHARED; i++) make(&shared[i], each);
    make_fixed(&shared[0], bss, sizeof bss / PAGE, 0);
    make_fixed(&shared[1], data, sizeof data / PAGE, 1);
    shared[1].backed = 1;
    // One of the heap itself.
    char *heap = sbrk(0);
    size_t skip = -(uintptr_t)heap & (PAGE - 1);
    heap = sbrk(skip + each * PAGE);
    NEED(heap != (char *)-1);
    munmap(workers[0].own[0].base, each * PAGE);
    make_fixed(&workers[0].own[0], heap + skip, each, 0);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigfillset(&action.sa_mask);
    NEED(!sigaction(SIGUSR1, &action, 0));
    NEED(!sigaction(SIGALRM, &action, 0));
    struct itimerval every = {{0, 7000}, {0, 7000}};
    NEED(!setitimer(ITIMER_REAL, &every, 0));
}

static void read_arguments(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "s:t:m:r:d:o:")) > 0) {
        switch (option) {
        case 's': seconds = atof(optarg); break;
        case 't': threads = atoi(optarg); break;
        case 'm': mib = atoi(optarg); break;
        case 'r': seed = atoll(optarg); break;
        case 'd': directory = optarg; break;
        case 'o': chosen = optarg; break;
        default: end(2, "usage: torture [-s SECONDS] [-t THREADS] [-m MIB] [-r SEED] [-d DIR] [-o OPERATION,...]");
        }
    }
    NEED(threads > 0 && threads <= 64);
    int any = 0;
    for (int i = 0; i < OPERATIONS; i++)
        if (is_chosen(operations[i].name)) any = 1;
        else operations[i].weight = 0;
    if (!any) end(2, "no such operation: %s", chosen);
}

static void print_operations(void) {
    printf("torture: %llu pages verified;", (unsigned long long)visits);
    for (int i = 0; i < OPERATIONS; i++) {
        unsigned long long done = operations[i].count, not_done = operations[i].not_here;
        if (operations[i].weight) printf(" %s %llu", operations[i].name, done);
        if (not_done) printf(" (%llu not here)", not_done);
    }
    printf("\n");
    for (int i = 0; i < OPERATIONS; i++)
        if (operations[i].weight && !operations[i].count) printf("torture: %s was never done\n", operations[i].name);
}

int main(int argc, char **argv) {
    static char path[4096];
    read_arguments(argc, argv);
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    NEED(length > 0);
    self_path = path;
    set_up();
    end_at = now() + seconds;
    for (int t = 0; t < threads; t++) NEED(!pthread_create(&workers[t].thread, 0, work, &workers[t]));
    for (int t = 0; t < threads; t++) NEED(!pthread_join(workers[t].thread, 0));
    for (int i = 0; i < SHARED; i++) check_region(&shared[i], "at the end, shared");
    if (strcmp(argv[0], "torture")) print_operations();
    return 0;
}
