// Thread-locals: of the program's own more than a megabyte, and libraries that bring some and take them away again.
//
// large: nothing besides. loaded: libraries come and go while pages are out.
#include "hostile.h"
#include <dlfcn.h>

static __thread char large[(1 << 20) + 4711];

static void *look(void *unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof large; i += 1000) NEED(large[i] == 0);
    memset(large, 7, sizeof large);
    verify_all("thread");
    return 0;
}

static char library[4096];

static void make_library(const char *program) {
    static const char MADE[] =
        "echo 'static __thread char some[5000]; char *there(void) { return some; }' | cc -shared -fPIC -o %s -x c -";
    char command[sizeof library + sizeof MADE];
    snprintf(library, sizeof library, "%s.so", program);
    snprintf(command, sizeof command, MADE, library);
    NEED(!system(command));
}

static void load_and_unload(void) {
    for (int round = 0; round < 8; round++) {
        void *loaded = dlopen(library, RTLD_NOW);
        NEED(loaded);
        char *(*there)(void) = (char *(*)(void))dlsym(loaded, "there");
        NEED(there && there()[round] == 0);
        verify_all("loaded");
        NEED(!dlclose(loaded));
        verify_all("unloaded");
    }
}

int main(int count, char **arguments) {
    begin(count, arguments);
    memset(large, 5, sizeof large);
    if (is("loaded")) make_library(arguments[0]);
    arena(arguments);
    if (is("loaded")) load_and_unload();
    pthread_t thread;
    NEED(!pthread_create(&thread, 0, look, 0));
    NEED(!pthread_join(thread, 0));
    for (size_t i = 0; i < sizeof large; i++) NEED(large[i] == 5);
    fork_and_verify();
    return done();
}
