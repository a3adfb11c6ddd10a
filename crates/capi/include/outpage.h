/* Outpage in a program: memory larger than RAM, under a limit of its own, the rest of it in a swap file.
 *
 * Link with -loutpage (pkg-config outpage, or the CMake package Outpage). Linux on x86-64 with glibc, with access to /dev/userfaultfd: `outpage doctor`
 * tells the remedy where that is missing. All of this is there since version 0.1.0.
 *
 * Memory objects of another process, `outpage serve`, are <outpage_client.h>; both may be used in one program, with the shared libraries.
 *
 * Ownership. A pager and a region are handles that the library allocates. A region is given back by outpage_region_free, a pager by outpage_pager_free, in any
 * order: the pager ends with its last region. A subscription is given back by outpage_subscription_free, before its region or after it. Text that the library returns is its own; outpage_message's lives until the thread's next call.
 *
 * Threads. Every function may be called by any thread, the ones that give a handle back or resize it while nobody uses it. A pager has a thread, which
 * serves faults one after the other; several pagers serve side by side.
 *
 * Signals. No function may be called in a signal handler.
 *
 * Forks. A forked child has no part of a region (MADV_DONTFORK): a touch is SIGSEGV, calls return OUTPAGE_E_FORKED. It gives handles back, or not.
 *
 * Errors. Functions return 0 or one of the codes below; outpage_message has a line on the last error of the calling thread. When a pager cannot go on, its swap
 * file full or broken, it ends: its regions are ordinary memory from then on, and calls return OUTPAGE_E_ENDED. A page whose bytes are lost is never
 * zeroes: a touch is SIGBUS (SIGSEGV before Linux 6.6), outpage_region_read and outpage_region_write return OUTPAGE_E_LOST.
 *
 * The memory is used like any other, but its mapping must not be changed (munmap, mremap, madvise, mprotect), and where the kernel has no UFFDIO_MOVE (before
 * 6.8) it must be pinned while a device writes to it (reads with O_DIRECT, registered buffers of io_uring).
 */
#ifndef OUTPAGE_H
#define OUTPAGE_H

#include <stddef.h>
#include <stdint.h>

#define OUTPAGE_VERSION_MAJOR 0
#define OUTPAGE_VERSION_MINOR 1
#define OUTPAGE_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

typedef struct outpage_pager outpage_pager;
typedef struct outpage_region outpage_region;
typedef struct outpage_subscription outpage_subscription;
typedef struct outpage_watch outpage_watch;

enum {
    OUTPAGE_E_SETTING = -101,  /* no such setting, or a wrong value */
    OUTPAGE_E_UFFD = -102,     /* this process gets no userfaultfd, or one that lacks what is needed */
    OUTPAGE_E_SWAP = -103,     /* the swap file, its I/O or its key cannot be had */
    OUTPAGE_E_BOUNDS = -104,   /* outside of the region */
    OUTPAGE_E_PINNED = -105,   /* more than half of the limit would be pinned */
    OUTPAGE_E_LOST = -106,     /* the bytes of a page are lost */
    OUTPAGE_E_ENDED = -107,    /* the pager has ended */
    OUTPAGE_E_FORKED = -108,   /* the caller is a forked child */
    OUTPAGE_E_IO = -109,       /* a file cannot be read */
    OUTPAGE_E_OS = -110,       /* the operating system refused something */
    OUTPAGE_E_ARGUMENT = -111, /* a null pointer, or text that is no UTF-8 */
    OUTPAGE_E_INTERNAL = -112  /* a fault of the library's own; what was asked is not done */
};

/* One line in English on the calling thread's last error; empty before the first. */
const char *outpage_message(void);

/* The version of the library, as "0.1.0". */
const char *outpage_version(void);

/* A pager with `limit` bytes of RAM for all of its regions, at least 8 MiB. `settings` is NULL or an array of name and value by turns, ended by NULL: the options of
 * `outpage run` without their dashes, as in {"swap", "/var/tmp", "reclaim", "lirs", NULL}. On success `*pager` is the caller's, otherwise NULL. */
int outpage_pager_new(uint64_t limit, const char *const *settings, outpage_pager **pager);

/* Gives a pager back. Its regions go on. NULL is allowed. */
void outpage_pager_free(outpage_pager *pager);

/* What a pager counted since it was made: 19 numbers, of which up to `count` are written to `values`, in the order of outpage_stat_name. Returns how many there are, or a code. */
int outpage_pager_stats(const outpage_pager *pager, uint64_t *values, size_t count);

/* The name of number `index`, as "page_outs"; NULL where there is none. */
const char *outpage_stat_name(size_t index);

/* A region of `bytes` bytes, all zero, mapped at a whole page. On success `*region` is the caller's, otherwise NULL. */
int outpage_region_new(const outpage_pager *pager, size_t bytes, outpage_region **region);

/* A region with what the file at `path` holds now, or a pipe up to its end. The file is read once; nothing is written to it. */
int outpage_region_from_file(const outpage_pager *pager, const char *path, outpage_region **region);

/* Gives a region back: it is unmapped. NULL is allowed. */
void outpage_region_free(outpage_region *region);

/* Where a region lies, until it is resized or given back. NULL for NULL. */
void *outpage_region_data(const outpage_region *region);

/* How many bytes it has. 0 for NULL. */
size_t outpage_region_size(const outpage_region *region);

/* Makes a region `bytes` bytes long: what is new is zero. It may lie elsewhere afterwards; nothing is copied. On an error it is as it was;
 * OUTPAGE_E_PINNED while some of it is pinned. */
int outpage_region_resize(outpage_region *region, size_t bytes);

/* Ranges below are `len` bytes from `offset` on. */

/* Brings pages into RAM, as a touch of each would. */
int outpage_region_prefault(const outpage_region *region, size_t offset, size_t len);

/* What will be done with pages. */
enum {
    OUTPAGE_NORMAL = 0,     /* nothing special: read-ahead finds out by itself */
    OUTPAGE_SEQUENTIAL = 1, /* touched one after another: read so, from the first fault on */
    OUTPAGE_RANDOM = 2,     /* touched in no order: each is read alone */
    OUTPAGE_WILL_NEED = 3,  /* touched soon: read while the program does something else, up to half of the limit */
    OUTPAGE_COLD = 4        /* not touched for long: leave before others */
};

/* Says what will be done with the pages that the range touches; of OUTPAGE_COLD those that lie in it as a whole. No byte depends on it. The first three hold until
 * the next of them, for the bytes that are there now. OUTPAGE_E_ARGUMENT where there is no such advice. */
int outpage_region_advise(const outpage_region *region, size_t offset, size_t len, int advice);

/* Brings pages into RAM and keeps them there until outpage_region_unpin of the same range. Pins are counted; half of the limit may be pinned at most, or three quarters by
 * a single pin; OUTPAGE_E_PINNED beyond. A region is not resized while some of it is pinned. */
int outpage_region_pin(outpage_region *region, size_t offset, size_t len);

/* Ends one outpage_region_pin of this range; OUTPAGE_E_BOUNDS where there is none. */
int outpage_region_unpin(outpage_region *region, size_t offset, size_t len);

/* What the pages hold that lie in the range as a whole is not wanted until outpage_region_take_back: they leave before all others and are not written. A page that
 * is touched meanwhile holds what it held, or zeroes. */
int outpage_region_discard(const outpage_region *region, size_t offset, size_t len);

/* The pages are wanted again. Returns how many of them were dropped since they were discarded, or a code. Those hold zeroes, or what was written since; all
 * others are as they were. The offsets of the first `count` of them are written to `dropped`, ascending, which is NULL or has room for so many. */
int64_t outpage_region_take_back(const outpage_region *region, size_t offset, size_t len, size_t *dropped, size_t count);

/* Makes a range zero. Whole pages of it take neither RAM nor disk until they are touched. */
int outpage_region_clear(const outpage_region *region, size_t offset, size_t len);

/* Where a page is. */
enum {
    OUTPAGE_UNTOUCHED = 0, /* never touched, or cleared */
    OUTPAGE_RESIDENT = 1,  /* in the program: a touch costs nothing */
    OUTPAGE_STAGED = 2,    /* out of the program, in RAM */
    OUTPAGE_PAGED_OUT = 3, /* in the swap file: a touch waits for a read */
    OUTPAGE_PAGE_LOST = 4  /* a touch is a signal */
};

/* Writes where each page is that the range touches, a byte each, up to `count` of them. Returns how many there are, or a code. */
int64_t outpage_region_places(const outpage_region *region, size_t offset, size_t len, uint8_t *places, size_t count);

/* What is known of one region: 9 numbers, of which up to `count` are written to `values`, in the order of outpage_region_stat_name. Returns how many there are, or
 * a code. Those behind "lost_pages" count since it was subscribed to, and are 0 where it is not: pages that "went_out" and "came_back", and touches
 * that the pager served, "major_faults" those that began a read, "minor_faults" all others. */
int outpage_region_stats(const outpage_region *region, uint64_t *values, size_t count);

/* The name of number `index`, as "paged_out_pages"; NULL where there is none. */
const char *outpage_region_stat_name(size_t index);

/* From now on it can be known which pages of a region are out, before they are touched: the pager writes it down as they leave and come. It covers the bytes that
 * the region has now: none that are added later, none that are taken away, none once the region was given back. OUTPAGE_E_OS where the region has a
 * subscription, or 64 others of the pager have one. On success `*subscription` is the caller's, otherwise NULL. */
int outpage_subscribe(const outpage_region *region, outpage_subscription **subscription);

/* Gives a subscription back. NULL is allowed. */
void outpage_subscription_free(outpage_subscription *subscription);

/* 1 if the page is out that byte `offset` of the region lies in, so that a touch waits, 0 otherwise and for NULL. No call to the pager: it costs two reads of memory. That
 * it is out may change at any moment. */
int outpage_subscription_is_out(const outpage_subscription *subscription, size_t offset);

/* Calls `each` with `context`, the offset of a page and whether it is out, for every page that went out or came in since the last time. A page may come several
 * times; what is said last holds. The first time tells of what is out already, and a time after thousands of changes may tell of every page. Returns how many
 * calls were made, or a code. One thread drains at a time; `each` may ask whether pages are out, and must not drain. */
int64_t outpage_subscription_drain(outpage_subscription *subscription, void (*each)(void *context, size_t offset, int out), void *context);

/* From now on `leaving` is called with `context`, an offset and a length, both of whole pages, before pages of the region leave RAM: they were taken out of
 * the program, and have their frames still. Whoever reads or writes them meanwhile keeps them, and what is discarded is not written; what nobody touches is
 * written and leaves. A thread of the watch's own makes the calls, one after the other; the pager waits for none, so that `leaving` may touch the region and
 * call any function, and a page of which it takes long to hear may have left. A page comes each time that it is on its way, now and then one that was kept
 * meanwhile. It covers what a subscription would, and is none: a region may have both. OUTPAGE_E_OS as there, where the region has a watch. On success
 * `*watch` is the caller's, otherwise NULL. Before Linux 6.8 only a write keeps a page. */
int outpage_region_watch(const outpage_region *region, void (*leaving)(void *context, size_t offset, size_t len), void *context, outpage_watch **watch);

/* Gives a watch back, before its region or after it. Waits until a call that is under way has returned, but where that call is the caller; none comes later.
 * NULL is allowed. */
void outpage_watch_free(outpage_watch *watch);

/* Copies from and to a region, without a signal where a page is lost: a part may be copied then. OUTPAGE_E_OS where memory of the caller's cannot be used. */
int outpage_region_read(const outpage_region *region, size_t offset, void *into, size_t len);
int outpage_region_write(const outpage_region *region, size_t offset, const void *from, size_t len);

#ifdef __cplusplus
}
#endif

#endif
