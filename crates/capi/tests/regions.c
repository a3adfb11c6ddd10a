/* What outpage.h offers, on memory of three times the limit. Exits with 77 where there is no userfaultfd. */
#include <outpage.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)

static void require(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, outpage_message());
        exit(1);
    }
}

static unsigned char content(size_t at, unsigned round) { return (unsigned char)(at / PAGE * 31 + at + round); }

static void fill(unsigned char *bytes, size_t len, unsigned round) {
    for (size_t at = 0; at < len; at += 512)
        bytes[at] = content(at, round);
}

static int holds(const unsigned char *bytes, size_t len, unsigned round) {
    for (size_t at = 0; at < len; at += 512)
        if (bytes[at] != content(at, round))
            return 0;
    return 1;
}

static void arguments(outpage_pager *pager) {
    const char *const wrong[] = {"reclaim", "nobody", NULL};
    const char *const unknown[] = {"colour", "red", NULL};
    outpage_pager *none = NULL;
    outpage_region *region = NULL;
    require(outpage_pager_new(8 * MIB, wrong, &none) == OUTPAGE_E_SETTING && none == NULL, "a wrong value");
    require(strstr(outpage_message(), "nobody") != NULL, "the message names it");
    require(outpage_pager_new(8 * MIB, unknown, &none) == OUTPAGE_E_SETTING, "an unknown setting");
    require(outpage_pager_new(1, NULL, &none) == OUTPAGE_E_SETTING, "a limit below the least");
    require(outpage_pager_new(8 * MIB, NULL, NULL) == OUTPAGE_E_ARGUMENT, "no place");
    require(outpage_region_new(NULL, 1, &region) == OUTPAGE_E_ARGUMENT && region == NULL, "no pager");
    require(outpage_region_from_file(pager, "/there/is/none", &region) == OUTPAGE_E_IO, "no file");
    require(outpage_region_prefault(NULL, 0, 0) == OUTPAGE_E_ARGUMENT, "no region");
    require(outpage_region_data(NULL) == NULL && outpage_region_size(NULL) == 0, "no region");
    outpage_region_free(NULL);
    outpage_pager_free(NULL);
}

static void statistics(const outpage_pager *pager) {
    uint64_t values[64];
    int count = outpage_pager_stats(pager, values, 64);
    require(count == 19, "statistics");
    uint64_t outs = 0;
    for (int i = 0; i < count; i++)
        if (strcmp(outpage_stat_name((size_t)i), "page_outs") == 0)
            outs = values[i];
    require(outs > 1000 && outpage_stat_name((size_t)count) == NULL, "page_outs");
}

static void pages(outpage_region *region) {
    size_t size = outpage_region_size(region), dropped[4096];
    uint8_t places[8192];
    require(outpage_region_pin(region, 0, 16 * PAGE) == 0, "pin");
    fill(outpage_region_data(region), size, 2);
    require(outpage_region_places(region, 0, 16 * PAGE, places, sizeof places) == 16, "places");
    for (int i = 0; i < 16; i++)
        require(places[i] == OUTPAGE_RESIDENT || places[i] == OUTPAGE_STAGED, "a pinned page is out");
    require(outpage_region_unpin(region, 0, PAGE) == OUTPAGE_E_BOUNDS, "another pin");
    require(outpage_region_resize(region, size / 2) == OUTPAGE_E_PINNED && outpage_region_size(region) == size, "resized while pinned");
    require(strstr(outpage_message(), "pinned") != NULL, "what is said of it");
    require(outpage_region_unpin(region, 0, 16 * PAGE) == 0, "unpin");
    require(outpage_region_places(region, 0, size, NULL, 0) == (int64_t)(size / PAGE), "all places");
    require(outpage_region_prefault(region, size - 1, 2) == OUTPAGE_E_BOUNDS, "beyond the end");
    void *nowhere = (void *)4096;
    require(outpage_region_read(region, 512, nowhere, 512) == OUTPAGE_E_OS, "nothing is lost where nobody can write");
    require(outpage_region_write(region, 512, nowhere, 512) == OUTPAGE_E_OS, "nor where nobody can read");
    require(outpage_region_prefault(region, (size_t)-1, 2) == OUTPAGE_E_BOUNDS, "beyond everything");

    size_t half = size / 2;
    require(outpage_region_discard(region, 0, half) == 0, "discard");
    require(holds((unsigned char *)outpage_region_data(region) + half, half, 2 + (unsigned)(half / PAGE * 31 + half)), "the other half");
    int64_t count = outpage_region_take_back(region, 0, half, dropped, 4096);
    require(count > 0 && count <= (int64_t)(half / PAGE), "take back");
    const unsigned char *bytes = outpage_region_data(region);
    size_t next = 0, listed = count < 4096 ? (size_t)count : 4096;
    for (size_t at = 0; next < listed && at < half; at += PAGE) {
        int lost = dropped[next] == at;
        next += (size_t)lost;
        require(bytes[at] == (lost ? 0 : content(at, 2)), "a page is neither whole nor empty");
    }
    require(outpage_region_clear(region, 0, size) == 0 && bytes[half] == 0, "clear");
}

/* What was said last of each page. */
struct seen {
    size_t count;
    uint8_t out[8192];
};

static void each(void *context, size_t offset, int out) {
    struct seen *seen = context;
    seen->count++;
    seen->out[offset / PAGE] = (uint8_t)out;
}

static void tells(outpage_region *region) {
    size_t size = outpage_region_size(region);
    outpage_subscription *subscription = NULL, *second = NULL;
    uint8_t places[8192];
    uint64_t values[16];
    require(outpage_subscribe(region, &subscription) == 0, "subscribe");
    require(outpage_subscribe(region, &second) == OUTPAGE_E_OS && second == NULL, "a second subscription");
    require(outpage_subscribe(NULL, &second) == OUTPAGE_E_ARGUMENT, "no region");
    fill(outpage_region_data(region), size, 3);
    struct seen seen = {0, {0}};
    /* What is on its way leaves or comes between two questions: asked again until nothing does. */
    size_t wrong = 1, unlike = 0;
    for (int tries = 0; wrong + unlike > 0 && tries < 10000; tries++) {
        require(outpage_region_places(region, 0, size, places, sizeof places) == (int64_t)(size / PAGE), "places");
        size_t before = seen.count;
        require(outpage_subscription_drain(subscription, each, &seen) == (int64_t)(seen.count - before), "drain");
        wrong = unlike = 0;
        for (size_t page = 0; page < size / PAGE; page++) {
            int out = places[page] == OUTPAGE_PAGED_OUT;
            wrong += (size_t)(outpage_subscription_is_out(subscription, page * PAGE) != out);
            unlike += (size_t)(seen.out[page] != out);
        }
    }
    require(wrong == 0, "what is out");
    require(seen.count > 1000 && unlike == 0, "what the drain says");
    require(outpage_subscription_drain(subscription, NULL, &seen) == OUTPAGE_E_ARGUMENT, "nobody to hear");
    require(outpage_subscription_is_out(NULL, 0) == 0 && outpage_subscription_is_out(subscription, (size_t)-1) == 0, "beyond");
    require(holds(outpage_region_data(region), MIB, 3), "what left first comes back");
    require(outpage_region_stats(region, values, 16) == 9, "statistics of a region");
    uint64_t pages = 0, out = 0, went = 0, back = 0, faults = 0;
    for (size_t i = 0; i < 9; i++) {
        const char *name = outpage_region_stat_name(i);
        pages += i < 5 ? values[i] : 0;
        out = strcmp(name, "paged_out_pages") == 0 ? values[i] : out;
        went = strcmp(name, "went_out") == 0 ? values[i] : went;
        back = strcmp(name, "came_back") == 0 ? values[i] : back;
        faults += strcmp(name, "major_faults") == 0 || strcmp(name, "minor_faults") == 0 ? values[i] : 0;
    }
    require(pages == size / PAGE && went > 0 && out > 0 && back > 0 && faults > 0, "their sums");
    require(outpage_region_stat_name(9) == NULL, "no tenth");
    outpage_subscription_free(subscription);
    outpage_subscription_free(NULL);
    require(outpage_subscribe(region, &subscription) == 0, "subscribe again");
    outpage_subscription_free(subscription);
}

/* Heard of by the watch's thread alone, until it is given back. */
struct heard {
    size_t pages, wrong;
    const unsigned char *bytes;
};

static void leaving(void *context, size_t offset, size_t len) {
    struct heard *heard = context;
    heard->pages += len / PAGE;
    /* Touching what leaves keeps it. */
    heard->wrong += (size_t)(offset % PAGE != 0 || len % PAGE != 0 || heard->bytes[offset] != content(offset, 6));
}

static void watches(outpage_region *region) {
    size_t size = outpage_region_size(region);
    outpage_watch *watch = NULL, *second = NULL;
    struct heard heard = {0, 0, outpage_region_data(region)};
    fill(outpage_region_data(region), size, 6);
    require(outpage_region_watch(region, leaving, &heard, &watch) == 0, "watch");
    require(outpage_region_watch(region, leaving, &heard, &second) == OUTPAGE_E_OS && second == NULL, "a second watch");
    require(outpage_region_watch(region, NULL, &heard, &second) == OUTPAGE_E_ARGUMENT, "nobody to call");
    require(outpage_region_watch(region, leaving, &heard, NULL) == OUTPAGE_E_ARGUMENT, "no place for a watch");
    for (int pass = 0; pass < 20; pass++)
        require(holds(outpage_region_data(region), size, 6), "what it holds");
    outpage_watch_free(watch);
    outpage_watch_free(NULL);
    require(heard.pages > 100 && heard.wrong == 0, "what was heard of");
    size_t pages = heard.pages;
    require(holds(outpage_region_data(region), size, 6) && heard.pages == pages, "a call after the end");
}

static void advice(outpage_region *region) {
    size_t size = outpage_region_size(region);
    fill(outpage_region_data(region), size, 4);
    for (int said = OUTPAGE_NORMAL; said <= OUTPAGE_COLD; said++) {
        require(outpage_region_advise(region, 0, size, said) == 0, "advise");
        require(holds(outpage_region_data(region), size, 4), "no byte depends on it");
    }
    require(outpage_region_advise(region, 0, size, 5) == OUTPAGE_E_ARGUMENT, "no such advice");
    require(outpage_region_advise(region, 0, size, -1) == OUTPAGE_E_ARGUMENT, "no such advice");
    require(outpage_region_advise(region, size, 1, OUTPAGE_COLD) == OUTPAGE_E_BOUNDS, "beyond the end");
    require(outpage_region_advise(region, 0, size, OUTPAGE_NORMAL) == 0, "advise");
}

static void forks(outpage_pager *pager, outpage_region *region) {
    pid_t child = fork();
    if (child == 0) {
        int refused = outpage_region_prefault(region, 0, 1) == OUTPAGE_E_FORKED;
        outpage_region_free(region);
        outpage_pager_free(pager);
        _exit(refused ? 0 : 1);
    }
    int status = 1;
    require(waitpid(child, &status, 0) == child && status == 0, "the child");
}

int main(int count, char **words) {
    require(count == 2, "usage: regions FOLDER");
    const char *const settings[] = {"swap", words[1], "encrypt", "off", "reclaim", "second-chance", NULL}; /* In order: what came first leaves first. */
    outpage_pager *pager = NULL;
    int opened = outpage_pager_new(8 * MIB, settings, &pager);
    if (opened == OUTPAGE_E_UFFD) {
        fprintf(stderr, "%s\n", outpage_message());
        return 77;
    }
    require(opened == 0, "open");
    require(strcmp(outpage_version(), "0.1.0") == 0, "version");
    arguments(pager);
    outpage_region *region = NULL;
    require(outpage_region_new(pager, 16 * MIB, &region) == 0, "region");
    fill(outpage_region_data(region), 16 * MIB, 1);
    require(outpage_region_resize(region, 24 * MIB) == 0 && outpage_region_size(region) == 24 * MIB, "resize");
    require(holds(outpage_region_data(region), 16 * MIB, 1), "what it held");
    unsigned char copied[3 * 512], written[3] = {7, 8, 9};
    require(outpage_region_read(region, 512, copied, sizeof copied) == 0 && holds(copied, 1, content(512, 1)), "read");
    require(outpage_region_write(region, 24 * MIB - 3, written, 3) == 0, "write");
    require(((unsigned char *)outpage_region_data(region))[24 * MIB - 1] == 9, "what was written");
    require(outpage_region_write(region, 24 * MIB - 2, written, 3) == OUTPAGE_E_BOUNDS, "beyond the end");
    statistics(pager);
    pages(region);
    outpage_region *told = NULL;
    /* One that was not grown: see the header. */
    require(outpage_region_new(pager, 16 * MIB, &told) == 0, "region");
    tells(told);
    watches(told);
    outpage_region_free(told);
    advice(region);
    outpage_region *file = NULL;
    require(outpage_region_from_file(pager, words[0], &file) == 0, "a file");
    require(memcmp(outpage_region_data(file), "\177ELF", 4) == 0, "its contents");
    outpage_region_free(file);
    forks(pager, region);
    outpage_pager_free(pager);
    fill(outpage_region_data(region), 24 * MIB, 5);
    require(holds(outpage_region_data(region), 24 * MIB, 5), "a region lives longer than its pager's handle");
    outpage_region_free(region);
    return 0;
}
