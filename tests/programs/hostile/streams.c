// Standard error is gone, and its number is another file's: what Outpage has to say is not written there.
//
// data: the program's data. log: what it logs to, as standard output and standard error.
#include "hostile.h"

static const char OWN[] = "the program's own line\n";

// Whether the file at descriptor 2 has more in it than OWN.
static int is_added_to(void) {
    char content[1000];
    NEED(pread(2, content, sizeof OWN - 1, 0) == sizeof OWN - 1 && !memcmp(content, OWN, sizeof OWN - 1));
    return lseek(2, 0, SEEK_END) != sizeof OWN - 1;
}

// Executes a program that is statically linked, of which a line is said.
static void execute_static(void) {
    static char *const WORDS[] = {"/sbin/ldconfig", "--version", 0};
    pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        int nowhere = open("/dev/null", O_WRONLY);
        if (is("data")) dup2(nowhere, 1);
        execv(WORDS[0], WORDS);
        _exit(9);
    }
    NEED(!await(child));
}

int main(int count, char **arguments) {
    begin(count, arguments);
    if (access("/sbin/ldconfig", X_OK)) end(77, "no /sbin/ldconfig");
    arena(arguments);
    char name[] = "/tmp/streams-XXXXXX";
    NEED(!close(2));
    NEED(mkstemp(name) == 2 && !unlink(name));
    NEED(write(2, OWN, sizeof OWN - 1) == sizeof OWN - 1);
    if (is("log")) NEED(dup2(2, 1) == 1);
    NEED(!is_added_to());
    execute_static();
    // ldconfig, too, writes to the log.
    NEED(is_added_to() == is("log"));
    if (is("log") && getenv("OUTPAGE_MEMORY")) {
        char content[1000] = {0};
        NEED(pread(2, content, sizeof content - 1, 0) > 0 && strstr(content, "outpage: "));
    }
    return done();
}
