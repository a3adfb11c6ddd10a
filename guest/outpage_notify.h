/*
 * The notifier's shared area, as a guest reads it: version 1.
 *
 * docs/notify.md says what every byte means; crates/core/src/notify is the same in Rust, and
 * crates/core/tests/notify holds one against the other. For a kernel module and for programs: nothing but a C99
 * compiler with GNU's __atomic built-ins (GCC 4.7, Clang 3.1) is needed. x86-64, little-endian.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef OUTPAGE_NOTIFY_H
#define OUTPAGE_NOTIFY_H

#ifdef __KERNEL__
#include <linux/types.h>
typedef u32 outpage_u32;
typedef u64 outpage_u64;
#else
#include <stdint.h>
typedef uint32_t outpage_u32;
typedef uint64_t outpage_u64;
#endif

#define OUTPAGE_NOTIFY_MAGIC 0x4e48504fu /* the bytes O, P, H, N */
#define OUTPAGE_NOTIFY_VERSION 1u
#define OUTPAGE_NOTIFY_HEADER_BYTES 4096u
#define OUTPAGE_NOTIFY_ENTRIES_MIN 16u
#define OUTPAGE_NOTIFY_ENTRIES_MAX (1u << 20)
#define OUTPAGE_NOTIFY_FRAMES_MAX (1u << 31)

/* The header. Offsets are bytes from the beginning of the area. */
struct outpage_notify_header {
	/* Written once by the host. */
	outpage_u32 magic;        /*   0 */
	outpage_u32 version;      /*   4 */
	outpage_u32 bytes;        /*   8 of the whole area */
	outpage_u32 frames;       /*  12 guest frames that have a bit */
	outpage_u32 out_offset;   /*  16 ring of frames that were paged out */
	outpage_u32 out_entries;  /*  20 a power of two */
	outpage_u32 in_offset;    /*  24 ring of frames that were paged in */
	outpage_u32 in_entries;   /*  28 */
	outpage_u32 bits_offset;  /*  32 */
	outpage_u32 zero_1[7];    /*  36 */
	/* Written by the host all the time. */
	outpage_u32 out_head;     /*  64 entries ever put into the ring, modulo 2^32 */
	outpage_u32 in_head;      /*  68 */
	outpage_u32 lost;         /*  72 entries that found their ring full, modulo 2^32 */
	outpage_u32 zero_2[13];   /*  76 */
	/* Written by the guest. */
	outpage_u32 out_tail;     /* 128 entries ever read, modulo 2^32 */
	outpage_u32 in_tail;      /* 132 */
	outpage_u32 seen;         /* 136 the value of lost up to which every frame was looked at */
	outpage_u32 hidden;       /* 140 pages hidden now; for people who look, as the next two */
	outpage_u32 skipped;      /* 144 entries that named no page that could be hidden */
	outpage_u32 rescued;      /* 148 hidden pages given back because memory ran out */
};

/* What the guest knows by itself; the area may not change it. */
struct outpage_notify {
	outpage_u32 *area;
	outpage_u32 frames;
	outpage_u32 entries;
	outpage_u32 out_tail;
	outpage_u32 in_tail;
	outpage_u32 seen;
};

enum outpage_notify_error {
	OUTPAGE_NOTIFY_OK = 0,
	OUTPAGE_NOTIFY_NO_AREA = 1,
	OUTPAGE_NOTIFY_OTHER_VERSION = 2,
	OUTPAGE_NOTIFY_DAMAGED = 3
};

/* Called with a frame and whether it is paged out now. The last call for a frame counts. */
typedef void (*outpage_notify_each)(void *context, outpage_u32 frame, int out);

static inline outpage_u32 outpage_notify_load(const outpage_u32 *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline outpage_u32 outpage_notify_acquire(const outpage_u32 *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void outpage_notify_release(outpage_u32 *word, outpage_u32 value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Bytes of an area for frames and entries. */
static inline outpage_u64 outpage_notify_bytes(outpage_u32 frames, outpage_u32 entries)
{
	return OUTPAGE_NOTIFY_HEADER_BYTES + 8ull * entries + 4ull * (((outpage_u64)frames + 31) / 32);
}

/* Takes an area of mapped_bytes, aligned to 4, that a host has made. */
static inline enum outpage_notify_error outpage_notify_attach(struct outpage_notify *n, void *area,
							      outpage_u64 mapped_bytes)
{
	struct outpage_notify_header *h = area;
	outpage_u32 entries;

	if (mapped_bytes < OUTPAGE_NOTIFY_HEADER_BYTES ||
	    outpage_notify_acquire(&h->magic) != OUTPAGE_NOTIFY_MAGIC)
		return OUTPAGE_NOTIFY_NO_AREA;
	if (outpage_notify_load(&h->version) != OUTPAGE_NOTIFY_VERSION)
		return OUTPAGE_NOTIFY_OTHER_VERSION;
	n->area = area;
	n->frames = outpage_notify_load(&h->frames);
	n->entries = entries = outpage_notify_load(&h->out_entries);
	if (n->frames == 0 || n->frames > OUTPAGE_NOTIFY_FRAMES_MAX ||
	    entries < OUTPAGE_NOTIFY_ENTRIES_MIN || entries > OUTPAGE_NOTIFY_ENTRIES_MAX ||
	    (entries & (entries - 1)) != 0 || outpage_notify_load(&h->in_entries) != entries ||
	    outpage_notify_load(&h->bytes) != outpage_notify_bytes(n->frames, entries) ||
	    mapped_bytes < outpage_notify_bytes(n->frames, entries) ||
	    outpage_notify_load(&h->out_offset) != OUTPAGE_NOTIFY_HEADER_BYTES ||
	    outpage_notify_load(&h->in_offset) != OUTPAGE_NOTIFY_HEADER_BYTES + 4 * entries ||
	    outpage_notify_load(&h->bits_offset) != OUTPAGE_NOTIFY_HEADER_BYTES + 8 * entries)
		return OUTPAGE_NOTIFY_DAMAGED;
	n->out_tail = n->in_tail = n->seen = 0;
	return OUTPAGE_NOTIFY_OK;
}

/* Whether the host has paged out a frame; 0 for a frame that there is not. */
static inline int outpage_notify_is_out(const struct outpage_notify *n, outpage_u32 frame)
{
	const outpage_u32 *bits = n->area + OUTPAGE_NOTIFY_HEADER_BYTES / 4 + 2 * (outpage_u64)n->entries;

	return frame < n->frames && (outpage_notify_load(bits + frame / 32) >> (frame % 32) & 1u);
}

static inline void outpage_notify_ring(const struct outpage_notify *n, const outpage_u32 *ring,
				       outpage_u32 tail, outpage_u32 unread, outpage_notify_each each,
				       void *context)
{
	outpage_u32 i, frame;

	for (i = 0; i < unread; i++) {
		frame = outpage_notify_load(ring + ((tail + i) & (n->entries - 1)));
		if (frame < n->frames)
			each(context, frame, outpage_notify_is_out(n, frame));
	}
}

/*
 * Reads what was told since the last time; after lost entries every frame is told of. Frames may change meanwhile: for
 * each that does there is an entry, or a lost one, at the next call. Returns 1 when every frame was looked at.
 */
static inline int outpage_notify_drain(struct outpage_notify *n, outpage_notify_each each, void *context)
{
	struct outpage_notify_header *h = (struct outpage_notify_header *)n->area;
	const outpage_u32 *rings = n->area + OUTPAGE_NOTIFY_HEADER_BYTES / 4;
	/* Before the bits: these are at least as new as the entries. */
	outpage_u32 out_head = outpage_notify_acquire(&h->out_head);
	outpage_u32 in_head = outpage_notify_acquire(&h->in_head);
	outpage_u32 lost = outpage_notify_acquire(&h->lost);
	outpage_u32 out = out_head - n->out_tail, in = in_head - n->in_tail, frame;
	int all = lost != n->seen || out > n->entries || in > n->entries;

	if (all) {
		for (frame = 0; frame < n->frames; frame++)
			each(context, frame, outpage_notify_is_out(n, frame));
		n->seen = lost;
		outpage_notify_release(&h->seen, lost);
	} else {
		outpage_notify_ring(n, rings, n->out_tail, out, each, context);
		outpage_notify_ring(n, rings + n->entries, n->in_tail, in, each, context);
	}
	n->out_tail = out_head;
	n->in_tail = in_head;
	outpage_notify_release(&h->out_tail, out_head);
	outpage_notify_release(&h->in_tail, in_head);
	return all;
}

#endif
