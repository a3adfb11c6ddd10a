// The model: what every page holds, and how that is seen.
#include "torture.h"

uint64_t visits;

void end(int code, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int length = snprintf(line, sizeof line, "torture: %d: ", getpid());
    length += vsnprintf(line + length, sizeof line - length - 1, format, args);
    va_end(args);
    line[length++] = '\n';
    if (write(2, line, length) < 0) _exit(3);
    _exit(code);
}

uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t next(Worker *w) { return mix(w->random += 0x9e3779b97f4a7c15ull); }
uint64_t below(Worker *w, uint64_t n) { return next(w) % n; }
uint64_t new_tag(Worker *w) { return (next(w) & ~MAYBE_ZERO) | 1; }

// A word of the page of `tag`. By tag, pages compress as those of programs do: not at all, to half, to a sixteenth, or they are one word repeated.
static uint64_t word(uint64_t tag, int i) {
    int span[] = {WORDS, WORDS / 2, 32, 1};
    int different = span[tag * 0x9e3779b97f4a7c15ull >> 62];
    return tag ? tag + i % different * 0x9e3779b97f4a7c15ull : 0;
}

void fill(void *page, uint64_t tag) {
    uint64_t *words = page;
    for (int i = 0; i < WORDS; i++) words[i] = word(tag, i);
}

// Whether a page is that of `tag`; the first wrong word is told through `at`.
int holds(const volatile uint64_t *words, uint64_t tag, int *at) {
    for (int i = 0; i < WORDS; i++) {
        if (words[i] != word(tag, i)) {
            *at = i;
            return 0;
        }
    }
    return 1;
}

void check_page(const char *page, uint64_t tag, const char *what) {
    int at = 0;
    const volatile uint64_t *words = (const volatile uint64_t *)page;
    __atomic_fetch_add(&visits, 1, __ATOMIC_RELAXED);
    if (holds(words, tag & ~MAYBE_ZERO, &at)) return;
    int ignored;
    if (tag & MAYBE_ZERO && holds(words, 0, &ignored)) return;
    end(1, "%s: page %p word %d is %llx, tag %llx, read again %llx", what, (void *)page, at,
        (unsigned long long)words[at], (unsigned long long)tag, (unsigned long long)words[at]);
}

// A page that MADV_FREE emptied stays empty.
void check(Region *r, size_t page, const char *what) {
    int ignored;
    check_page(at(r, page), r->tags[page], what);
    if (r->tags[page] & MAYBE_ZERO && holds((void *)at(r, page), 0, &ignored)) r->tags[page] = 0;
}

void check_region(Region *r, const char *what) {
    for (size_t i = 0; i < r->pages; i++) check(r, i, what);
}

// Meanwhile others page.
void check_beside(Region *r, size_t from, size_t count, const char *what) {
    for (size_t i = 0; i < r->pages; i += 5)
        if (i < from || i >= from + count) check(r, i, what);
}

void put(Worker *w, Region *r, size_t page) {
    uint64_t tag = new_tag(w);
    fill(at(r, page), tag);
    r->tags[page] = tag;
}

void zero_tags(Region *r, size_t from, size_t count) { memset(r->tags + from, 0, count * sizeof *r->tags); }

void part(Worker *w, Region *r, size_t *from, size_t *count) {
    *from = below(w, r->pages);
    *count = 1 + below(w, r->pages - *from < PART_MAX ? r->pages - *from : PART_MAX);
}

void *map(size_t pages) {
    void *base = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(base != MAP_FAILED);
    return base;
}

// The tags are mapped, not allocated: children of every kind make regions.
void make(Region *r, size_t pages) {
    r->pages = pages, r->pages_max = pages * 2;
    r->base = map(pages);
    r->tags = map((r->pages_max * sizeof *r->tags + PAGE - 1) / PAGE);
    pthread_mutex_init(&r->lock, 0);
}
