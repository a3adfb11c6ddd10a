/* Memory objects of `outpage serve`: more memory than there is RAM for, of which a program can say what it does not need.
 *
 * Memory of this very process, without a server, is `outpage.h`; both may be used in one program, with the shared libraries.
 *
 * Link with -loutpage_client (the shared library), or with liboutpage_client.a and -lpthread -ldl -lm. Linux on x86-64 with glibc.
 *
 * Ownership. A client and an object are handles that the library allocates. An object is given back by outpage_destroy, a client by outpage_disconnect; the
 * connection ends when the client and all of its objects were given back, in any order. Text that the library returns is its own and lives for ever.
 *
 * Threads. Every function may be called by any thread, the ones that give a handle back while nobody uses it. One request of a client is under way at a time;
 * outpage_mark is none. The library starts one thread for each client.
 *
 * Signals. No function may be called in a signal handler.
 *
 * Forks. A forked child has no part of an object (MADV_DONTFORK), and must call none of these functions with its parent's handles.
 *
 * The memory. It is read and written like any other, except:
 *  - it must not be the target of transfers that pin it (reads with O_DIRECT, registered buffers of io_uring, RDMA): what is written through a pin is lost if the page
 *    leaves meanwhile;
 *  - its mapping must not be changed (munmap, mremap, madvise, mprotect).
 *
 * Errors. Functions return 0 or one of the codes below. When the connection ends, every call returns OUTPAGE_GONE, and a touch of any of the client's
 * objects is SIGBUS: nobody has their contents any more, and they are never zeroes.
 */
#ifndef OUTPAGE_CLIENT_H
#define OUTPAGE_CLIENT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct outpage_client outpage_client;
typedef struct outpage_object outpage_object;

/* Bytes of a page. Ranges are pages from `first` on, half-open: first <= page < first + pages. */
#define OUTPAGE_PAGE 4096u

enum {
    OUTPAGE_OK = 0,
    OUTPAGE_CONNECT = -1,   /* the server cannot be reached */
    OUTPAGE_GONE = -2,      /* the connection has ended; the objects are lost */
    OUTPAGE_FULL = -3,      /* no room for another client, or not for its minimum */
    OUTPAGE_BOUNDS = -4,    /* too large, too many, none, or outside of the object */
    OUTPAGE_NO_MEMORY = -5, /* the server's machine has no memory, descriptors or mappings left */
    OUTPAGE_PROTOCOL = -6,  /* server and library are of different versions */
    OUTPAGE_UFFD = -7,      /* this process gets no userfaultfd */
    OUTPAGE_OS = -8,        /* the operating system refused memory, descriptors or threads */
    OUTPAGE_ARGUMENT = -9   /* a null handle, or a number outside of its range */
};

/* What a code means, and the remedy: one line in English. */
const char *outpage_error(int status);

/* Connects to the server that listens at `path`. Of its limit the client has `minimum_bytes` whatever others do (at least 1 MiB), and of the rest a part by
 * `weight`, 1 to 10000, beside others that want more; 100 is usual. On success `*client` is the caller's, otherwise NULL. */
int outpage_connect(const char *path, uint64_t minimum_bytes, uint32_t weight, outpage_client **client);

/* OUTPAGE_GONE once the connection has ended, otherwise OUTPAGE_OK. No request. */
int outpage_check(const outpage_client *client);

/* Most bytes that all objects of a client may have. */
uint64_t outpage_bytes_max(const outpage_client *client);

/* Gives a client back. Its objects stay until they are given back, too. NULL is allowed. */
void outpage_disconnect(outpage_client *client);

/* A memory object of `bytes` bytes, up to a whole page, all zero, mapped. On success `*object` is the caller's, otherwise NULL. */
int outpage_object_create(const outpage_client *client, uint64_t bytes, outpage_object **object);

/* Where an object is mapped, for as long as it lives. */
void *outpage_map(const outpage_object *object);

/* Gives up what is in pages, until they are taken back: the server may drop it, in place of writing it to disk. Pages that were never touched are not
 * concerned. No request: bits in memory that is shared with the server. */
int outpage_mark(const outpage_object *object, uint64_t first, uint64_t pages);

/* The server may drop now what is given up of the pages. It does under `--discard uf`; under every policy it looks at the marks. */
int outpage_flush(const outpage_object *object, uint64_t first, uint64_t pages);

/* Wants the pages again. Returns how many of them were dropped since they were marked, or a code. Those hold zeroes, or what was written since; all others are
 * as they were. A write that raced with the drop is kept, or its page is told lost. `lost` is NULL or has (pages + 7) / 8 bytes: bit i % 8 of byte
 * i / 8 says that page first + i was dropped. On an error it is not written. */
int64_t outpage_take_back(const outpage_object *object, uint64_t first, uint64_t pages, uint8_t *lost);

/* Gives an object back: its memory is unmapped and its contents are gone. NULL is allowed. */
void outpage_destroy(outpage_object *object);

#ifdef __cplusplus
}
#endif

#endif
