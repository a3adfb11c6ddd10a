/* Reads an area from the file of its first argument, drains it and writes it back. Says what it was told. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "outpage_notify.h"

#define AT(field, offset) _Static_assert(offsetof(struct outpage_notify_header, field) == (offset), #field)
AT(magic, 0);
AT(version, 4);
AT(bytes, 8);
AT(frames, 12);
AT(out_offset, 16);
AT(out_entries, 20);
AT(in_offset, 24);
AT(in_entries, 28);
AT(bits_offset, 32);
AT(out_head, 64);
AT(in_head, 68);
AT(lost, 72);
AT(out_tail, 128);
AT(in_tail, 132);
AT(seen, 136);
AT(hidden, 140);
AT(skipped, 144);
AT(rescued, 148);

static void say(void *context, outpage_u32 frame, int out)
{
	(void)context;
	printf("%u %s\n", frame, out ? "out" : "in");
}

int main(int argc, char **argv)
{
	struct outpage_notify n;
	enum outpage_notify_error error;
	long bytes;
	void *area;
	FILE *file;

	if (argc != 2 || !(file = fopen(argv[1], "r+b")))
		return 100;
	fseek(file, 0, SEEK_END);
	bytes = ftell(file);
	rewind(file);
	area = malloc(bytes + 1);
	if (!area || fread(area, 1, bytes, file) != (size_t)bytes)
		return 101;
	error = outpage_notify_attach(&n, area, bytes);
	if (error != OUTPAGE_NOTIFY_OK)
		return error;
	/* Goes on where the guest before it stopped. */
	n.out_tail = ((struct outpage_notify_header *)area)->out_tail;
	n.in_tail = ((struct outpage_notify_header *)area)->in_tail;
	n.seen = ((struct outpage_notify_header *)area)->seen;
	if (outpage_notify_drain(&n, say, NULL))
		puts("all");
	rewind(file);
	if (fwrite(area, 1, bytes, file) != (size_t)bytes)
		return 102;
	fclose(file);
	free(area);
	return 0;
}
