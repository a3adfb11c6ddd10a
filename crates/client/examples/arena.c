/* Regions of memory in a memory object, of which what was freed need not be kept.
 *
 * A server answers requests. Each has a region that it fills and frees at its end; a cache stays. What a region leaves is marked, so that the server of
 * `outpage serve` drops it in place of writing it, and is taken back when the next region gets it.
 *
 * cc -I crates/client/include crates/client/examples/arena.c -L target/release -loutpage_client -o arena
 * ./arena /run/user/1000/outpage.socket */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "outpage_client.h"

/* Pages that a region gets at a time: a mark is a bit a page, taking back is a request. */
#define CHUNK 64u
#define CHUNK_BYTES (CHUNK * (size_t)OUTPAGE_PAGE)
/* Of the arena: 64 MiB. */
#define CHUNKS 256u

/* Where regions get their memory. */
struct arena {
    outpage_object *object;
    char *memory;
    /* Chunks that were used and freed: they are marked. */
    unsigned free[CHUNKS], frees;
    /* The first chunk that was never used. */
    unsigned next;
    /* Pages that were taken back, and of those the ones that were dropped. */
    uint64_t again, dropped;
};

/* Memory that is freed all at once. */
struct region {
    struct arena *arena;
    unsigned chunks[CHUNKS], count;
    /* Bytes of the last chunk that are in use. */
    size_t used;
};

static void demand(int status, const char *what) {
    if (status != OUTPAGE_OK) {
        fprintf(stderr, "%s: %s\n", what, outpage_error(status));
        exit(1);
    }
}

/* A chunk. What is in it is anything: what was there before, or zeroes. */
static unsigned chunk(struct arena *arena) {
    if (arena->frees == 0) {
        demand(arena->next < CHUNKS ? OUTPAGE_OK : OUTPAGE_NO_MEMORY, "chunk");
        return arena->next++;
    }
    unsigned chunk = arena->free[--arena->frees];
    int64_t dropped = outpage_take_back(arena->object, (uint64_t)chunk * CHUNK, CHUNK, NULL);
    demand(dropped < 0 ? (int)dropped : OUTPAGE_OK, "take back");
    arena->again += CHUNK;
    arena->dropped += (uint64_t)dropped;
    return chunk;
}

/* So many bytes, at most a chunk, at a multiple of 8; what is in them is anything. */
static void *region_alloc(struct region *region, size_t bytes) {
    bytes = (bytes + 7) / 8 * 8;
    if (region->count == 0 || region->used + bytes > CHUNK_BYTES) {
        region->chunks[region->count++] = chunk(region->arena);
        region->used = 0;
    }
    char *start = region->arena->memory + region->chunks[region->count - 1] * CHUNK_BYTES + region->used;
    region->used += bytes;
    return start;
}

static void region_free(struct region *region) {
    struct arena *arena = region->arena;
    while (region->count > 0) {
        unsigned chunk = region->chunks[--region->count];
        demand(outpage_mark(arena->object, (uint64_t)chunk * CHUNK, CHUNK), "mark");
        arena->free[arena->frees++] = chunk;
    }
}

static uint64_t content(uint64_t of, uint64_t word) { return ((of << 32 ^ word) * 0x9e3779b97f4a7c15u) | 1; }

static void fill(uint64_t *words, size_t count, uint64_t of) {
    for (size_t at = 0; at < count; at++)
        words[at] = content(of, at);
}

static void check(const uint64_t *words, size_t count, uint64_t of) {
    for (size_t at = 0; at < count; at++)
        if (words[at] != content(of, at)) {
            printf("word %zu of %" PRIu64 " is not as it was\n", at, of);
            exit(1);
        }
}

int main(int count, char **words) {
    if (count != 2) {
        fprintf(stderr, "usage: %s SOCKET\n", words[0]);
        return 64;
    }
    static struct arena arena;
    static struct region cache, region;
    static uint64_t *parts[16384], *kept[24];
    outpage_client *client;
    demand(outpage_connect(words[1], 0, 100, &client), "connect");
    demand(outpage_object_create(client, CHUNKS * (uint64_t)CHUNK_BYTES, &arena.object), "create");
    arena.memory = outpage_map(arena.object);
    cache.arena = region.arena = &arena;

    for (uint64_t request = 0; request < 24; request++) {
        /* 2 to 14 MiB, in parts of 1 KiB. */
        uint64_t many = 2048 + request * 7919 % 12288;
        for (uint64_t part = 0; part < many; part++) {
            parts[part] = region_alloc(&region, 1024);
            fill(parts[part], 128, request << 16 | part);
        }
        for (uint64_t part = 0; part < many; part++)
            check(parts[part], 128, request << 16 | part);
        region_free(&region);
        kept[request] = region_alloc(&cache, CHUNK_BYTES);
        fill(kept[request], CHUNK_BYTES / 8, 1u << 30 | request);
        /* The cache is read: where it left memory, it comes back in the place of what was freed. */
        for (uint64_t old = 0; old <= request; old++)
            check(kept[old], CHUNK_BYTES / 8, 1u << 30 | old);
    }
    printf("%" PRIu64 " pages were freed and used again, %" PRIu64 " of them had been dropped\n", arena.again, arena.dropped);
    outpage_destroy(arena.object);
    outpage_disconnect(client);
    return 0;
}
