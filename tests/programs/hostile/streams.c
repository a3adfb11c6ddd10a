// Standard error is gone or nobody reads it: what Outpage has to say is written nowhere else, and neither ends nor stops the program.
//
// data: its number is that of the program's data. log: that of what it logs to, as standard output and standard error. unread: a pipe that
// nobody reads. full: a pipe that is full.
#include "hostile.h"

static const char OWN[] = "the program's own line\n";

// Whether the file at descriptor 2 has more in it than OWN.
static int is_added_to(void) {
    char content[1000];
    NEED(pread(2, content, sizeof OWN - 1, 0) == sizeof OWN - 1 && !memcmp(content, OWN, sizeof OWN - 1));
    return lseek(2, 0, SEEK_END) != sizeof OWN - 1;
}

// A program that is statically linked. Where ldconfig is a script it is the one behind it: a shell that runs the script has a standard
// error of its own, the file that it was given as such.
static char *statically_linked(void) { return access("/sbin/ldconfig.real", X_OK) ? "/sbin/ldconfig" : "/sbin/ldconfig.real"; }

// Executes it, of which a line is said.
static void execute_static(void) {
    char *const words[] = {statically_linked(), "--version", 0};
    pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        int nowhere = open("/dev/null", O_WRONLY);
        if (!is("log")) dup2(nowhere, 1);
        execv(words[0], words);
        _exit(9);
    }
    NEED(!await(child));
}

// Has a file of the program's own as descriptor 2.
static void replaced(void) {
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
}

// Executes this program anew with a pipe for standard error, which the variant says more of.
static void begin_anew(char **arguments) {
    static char filler[1 << 16];
    int ends[2];
    NEED(!pipe(ends));
    if (is("full")) {
        NEED(!fcntl(ends[1], F_SETFL, O_NONBLOCK));
        while (write(ends[1], filler, sizeof filler) > 0) continue;
        NEED(!fcntl(ends[1], F_SETFL, 0));
    } else NEED(!close(ends[0]));
    NEED(dup2(ends[1], 2) == 2);
    char *words[] = {arguments[0], arguments[1], is("full") ? "full-anew" : "unread-anew", 0};
    execv("/proc/self/exe", words);
    NEED(0);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    if (access(statically_linked(), X_OK)) end(77, "no /sbin/ldconfig");
    if (is("unread") || is("full")) begin_anew(arguments);
    NEED(signal(SIGPIPE, SIG_DFL) == SIG_DFL);
    arena(arguments);
    if (is("data") || is("log")) replaced();
    else execute_static();
    return done();
}
