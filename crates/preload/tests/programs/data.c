// A large initialised array is anonymous memory under the shim; a small one stays as it was.
#include "check.h"

char large[4 << 20] = {1, 2, 3};
char *pointer = &large[2];
char zeroes[4 << 20];

// Whether the mapping that holds `address` has a file name.
static int has_file(void *address) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        CHECK(sscanf(line, "%lx-%lx", &start, &end) == 2);
        if (start <= (unsigned long)address && (unsigned long)address < end)
            return strchr(line, '/') != NULL;
    }
    CHECK(!"mapped");
    return 0;
}

int main(int count, char **arguments) {
    (void)arguments;
    CHECK(has_file(&large[2 << 20]) == (count > 1));
    CHECK(large[0] == 1 && *pointer == 3 && large[4 << 20 >> 1] == 0);
    large[3 << 20] = 4;
    CHECK(large[3 << 20] == 4 && zeroes[1 << 20] == 0);
    CHECK(!has_file(&zeroes[2 << 20]));
    return 0;
}
