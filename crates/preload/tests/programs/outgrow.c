// Writes 64 MiB and reads them again.
#include "check.h"

int main(void) {
    enum { BYTES = 64 << 20 };
    char *memory = malloc(BYTES);
    CHECK(memory);
    for (long i = 0; i < BYTES; i += 4096)
        memory[i] = i >> 12;
    for (long i = 0; i < BYTES; i += 4096)
        CHECK(memory[i] == (char)(i >> 12));
    return 0;
}
