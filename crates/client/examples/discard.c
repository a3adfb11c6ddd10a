/* A buffer of 64 MiB in memory objects of `outpage serve --memory 16M`, of which half is scratch space.
 *
 * cc -I crates/client/include crates/client/examples/discard.c -L target/release -loutpage_client -o discard
 * ./discard /run/user/1000/outpage.socket */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outpage_client.h"

#define PAGES 16384u

static void demand(int status, const char *what) {
    if (status != OUTPAGE_OK) {
        fprintf(stderr, "%s: %s\n", what, outpage_error(status));
        exit(1);
    }
}

static uint64_t content(uint64_t page) { return page * 0x9e3779b97f4a7c15u + 1; }

int main(int count, char **words) {
    if (count != 2) {
        fprintf(stderr, "usage: %s SOCKET\n", words[0]);
        return 64;
    }
    outpage_client *client;
    outpage_object *object;
    demand(outpage_connect(words[1], 0, 100, &client), "connect");
    demand(outpage_object_create(client, (uint64_t)PAGES * OUTPAGE_PAGE, &object), "create");
    char *memory = outpage_map(object);

    for (uint64_t page = 0; page < PAGES; page++) {
        uint64_t value = content(page);
        memcpy(memory + page * OUTPAGE_PAGE, &value, sizeof value);
        /* The second half of each 64 pages is scratch: what is in it is not needed once the 64 are done. */
        if (page % 64 == 63)
            demand(outpage_mark(object, page - 31, 32), "mark");
    }

    uint8_t lost[PAGES / 8];
    int64_t dropped = outpage_take_back(object, 0, PAGES, lost);
    demand(dropped < 0 ? (int)dropped : OUTPAGE_OK, "take back");
    for (uint64_t page = 0; page < PAGES; page++) {
        uint64_t value;
        memcpy(&value, memory + page * OUTPAGE_PAGE, sizeof value);
        int gone = lost[page / 8] >> page % 8 & 1;
        if (gone && page % 64 < 32) {
            printf("page %" PRIu64 " was dropped and had not been given up\n", page);
            return 1;
        }
        if (value != (gone ? 0 : content(page))) {
            printf("page %" PRIu64 " is not as it was\n", page);
            return 1;
        }
    }
    printf("%" PRId64 " of %u pages were dropped, all others are as they were\n", dropped, PAGES);
    outpage_destroy(object);
    outpage_disconnect(client);
    return 0;
}
