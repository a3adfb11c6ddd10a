// Mappings that the kernel makes one: a process has 65,530 of them (vm.max_map_count).
//
// many: single pages mapped after paging began. over: pages mapped over others. back: pages made unusable, and mapped anew. moved: such
// pages, moved as one (MREMAP_DONTUNMAP), which the kernel refuses of several.
#include "hostile.h"

enum { COUNT = 2000 };

static int mappings(void) {
    // Without the heap: it would be a mapping more.
    int file = open("/proc/self/maps", O_RDONLY), lines = 0;
    static char text[4096];
    NEED(file >= 0);
    for (ssize_t got; (got = read(file, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < got; i++) lines += text[i] == '\n';
    close(file);
    return lines;
}

static void map_anew(size_t page, int access) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    NEED(mmap(at(page), PAGE, access, flags, -1, 0) == at(page));
}

int main(int count, char **arguments) {
    begin(count, arguments);
    arena(arguments);
    int before = mappings(), access = PROT_READ | PROT_WRITE;
    if (is("many")) {
        static char *single[COUNT];
        for (int i = 0; i < COUNT; i++) memset(single[i] = map(1), i | 1, PAGE);
        for (int i = 0; i < COUNT; i++)
            for (int k = 0; k < PAGE; k++) NEED(single[i][k] == (char)(i | 1));
    }
    for (size_t i = 100; !is("many") && i < 100 + COUNT; i += 2) {
        if (is("back")) map_anew(i, PROT_NONE);
        map_anew(i, access);
        put(i);
    }
    int more = mappings() - before;
    // Natively none: neighbours are one again. What another thread of Outpage's maps meanwhile is a few.
    if (more > 100) end(2, "%d mappings more", more);
    if (is("moved")) {
        size_t bytes = 64 * PAGE;
        char *to = mremap(at(100), bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
        NEED(to != MAP_FAILED);
        NEED(mremap(to, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at(100)) == at(100));
    }
    verify_all("afterwards");
    fork_and_verify();
    return done();
}
