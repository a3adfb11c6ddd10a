// Without a limit libc is left alone.
#include "check.h"

int main(void) {
    unsigned char *code = (unsigned char *)mmap;
    CHECK(code[0] != 0xe9 && code[4] != 0xe9);
    return 0;
}
