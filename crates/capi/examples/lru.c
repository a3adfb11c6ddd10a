/* A cache of computed entries in memory that is paged: which entry makes place for a new one?
 *
 *     lru FOLDER [LOOKUPS]
 *
 * The same lookups run three times. "overwrite" writes the new entry over the least recently used one, which as a rule is paged out, so that it is read to be
 * overwritten. "empty" clears that page first. "subscribe" drops an entry that it knows to be out, and one that it looks up and that is out it computes anew, where
 * that takes less time than a read. Exits with 77 where there is no userfaultfd, and with 1 where an entry is not what was computed. */
#include <outpage.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A page each: 32 MiB, under a limit of 16. */
#define ENTRIES 8192
#define LIMIT ((uint64_t)16 << 20)
#define KEYS 32768
#define PAGE ((size_t)4096)
#define WORDS (PAGE / sizeof(uint64_t))
#define NONE ((size_t)-1)

enum kind { OVERWRITE, EMPTY, SUBSCRIBE };

struct cache {
    enum kind kind;
    outpage_region *region;
    outpage_subscription *subscription;
    size_t entry_of[KEYS];    /* NONE where a key is not cached */
    uint64_t key_of[ENTRIES]; /* what an entry holds */
    size_t older[ENTRIES + 1], newer[ENTRIES + 1]; /* the order of use, a ring through ENTRIES */
    size_t used;
    unsigned char waits[ENTRIES]; /* is in `out` */
    size_t out[ENTRIES], first_out, outs; /* entries that went out, as a ring */
    size_t hits, computed;
};

static uint64_t *entry_at(struct cache *cache, size_t entry) {
    return (uint64_t *)((char *)outpage_region_data(cache->region) + entry * PAGE);
}

static uint64_t content(uint64_t key, size_t word) { return (key << 16 | word) * UINT64_C(0x9E3779B97F4A7C15); }

static void compute(struct cache *cache, size_t entry, uint64_t key) {
    uint64_t *words = entry_at(cache, entry);
    cache->computed++;
    for (size_t i = 0; i < WORDS; i++)
        words[i] = content(key, i);
}

static void went_out(void *context, size_t offset, int out) {
    struct cache *cache = context;
    size_t entry = offset / PAGE;
    if (out && !cache->waits[entry]) {
        cache->out[(cache->first_out + cache->outs++) % ENTRIES] = entry;
        cache->waits[entry] = 1;
    }
}

static void unlink_entry(struct cache *cache, size_t entry) {
    cache->newer[cache->older[entry]] = cache->newer[entry];
    cache->older[cache->newer[entry]] = cache->older[entry];
}

static void link_newest(struct cache *cache, size_t entry) {
    cache->older[entry] = cache->older[ENTRIES];
    cache->newer[entry] = ENTRIES;
    cache->newer[cache->older[ENTRIES]] = entry;
    cache->older[ENTRIES] = entry;
}

/* The entry to drop: one that is out, where that is known, else the one that was used least recently. Off the order of use. */
static size_t victim(struct cache *cache) {
    if (cache->used < ENTRIES)
        return cache->used++;
    size_t entry = cache->newer[ENTRIES];
    if (cache->subscription)
        outpage_subscription_drain(cache->subscription, went_out, cache);
    while (cache->outs > 0) {
        size_t oldest = cache->out[cache->first_out];
        cache->first_out = (cache->first_out + 1) % ENTRIES;
        cache->outs--;
        cache->waits[oldest] = 0;
        if (outpage_subscription_is_out(cache->subscription, oldest * PAGE)) {
            entry = oldest;
            break;
        }
    }
    unlink_entry(cache, entry);
    cache->entry_of[cache->key_of[entry]] = NONE;
    return entry;
}

static int look_up(struct cache *cache, uint64_t key) {
    size_t entry = cache->entry_of[key];
    if (entry == NONE) {
        entry = victim(cache);
        if (cache->kind != OVERWRITE && outpage_region_clear(cache->region, entry * PAGE, PAGE) != 0)
            return 0;
        compute(cache, entry, key);
        cache->key_of[entry] = key;
        cache->entry_of[key] = entry;
    } else {
        unlink_entry(cache, entry);
        if (cache->subscription && outpage_subscription_is_out(cache->subscription, entry * PAGE)) {
            if (outpage_region_clear(cache->region, entry * PAGE, PAGE) != 0)
                return 0;
            compute(cache, entry, key);
        } else {
            cache->hits++;
        }
    }
    link_newest(cache, entry);
    const uint64_t *words = entry_at(cache, entry);
    return words[0] == content(key, 0) && words[WORDS - 1] == content(key, WORDS - 1);
}

static int run(const char *folder, enum kind kind, long lookups) {
    static const char *const names[] = {"overwrite", "empty", "subscribe"};
    const char *const settings[] = {"swap", folder, "encrypt", "off", NULL};
    outpage_pager *pager = NULL;
    struct cache *cache = calloc(1, sizeof *cache);
    int opened = outpage_pager_new(LIMIT, settings, &pager);
    if (opened != 0 || !cache || outpage_region_new(pager, ENTRIES * PAGE, &cache->region) != 0
        || (kind == SUBSCRIBE && outpage_subscribe(cache->region, &cache->subscription) != 0)) {
        fprintf(stderr, "%s\n", outpage_message());
        return opened == OUTPAGE_E_UFFD ? 77 : 1;
    }
    cache->kind = kind;
    cache->older[ENTRIES] = cache->newer[ENTRIES] = ENTRIES;
    for (size_t key = 0; key < KEYS; key++)
        cache->entry_of[key] = NONE;
    uint64_t random = UINT64_C(0x123456789ABCDEF1);
    struct timespec began, ended;
    timespec_get(&began, TIME_UTC);
    for (long i = 0; i < lookups; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        double part = (double)(random >> 11) / 9007199254740992.0; /* 2 to the 53: the lower keys more often */
        if (!look_up(cache, (uint64_t)(part * part * part * KEYS))) {
            fprintf(stderr, "lookup %ld: an entry is not what was computed\n", i);
            return 1;
        }
    }
    timespec_get(&ended, TIME_UTC);
    double seconds = (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
    printf("%-10s %7.2f s, %zu hits, %zu computed\n", names[kind], seconds, cache->hits, cache->computed);
    outpage_subscription_free(cache->subscription);
    outpage_region_free(cache->region);
    outpage_pager_free(pager);
    free(cache);
    return 0;
}

int main(int count, char **words) {
    if (count < 2) {
        fprintf(stderr, "usage: %s FOLDER [LOOKUPS]\n", words[0]);
        return 64;
    }
    long lookups = count > 2 ? atol(words[2]) : 20000;
    for (int kind = OVERWRITE; kind <= SUBSCRIBE; kind++) {
        int code = run(words[1], (enum kind)kind, lookups);
        if (code != 0)
            return code;
    }
    return 0;
}
