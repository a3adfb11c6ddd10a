// SPDX-License-Identifier: GPL-2.0
/*
 * The guest's end of Outpage's notifier: hides the pages that the host has paged out from the guest's own page daemon.
 *
 * The shared area (docs/notify.md) is the memory of QEMU's device ivshmem-plain. A page is hidden by PG_mlocked on its folio: reclaim finds
 * it not evictable, before it looks at mappings or contents, and puts it on the unevictable list. No reference is kept, so a
 * page that is freed is hidden no longer. Anonymous small pages only: a page of a file that is clean costs nothing to drop.
 *
 * Tried with Linux 6.1 (Debian 12). Parameters: modinfo; counters: /proc/outpage.
 */
#include <linux/bitmap.h>
#include <linux/kprobes.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/oom.h>
#include <linux/pagevec.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/swap.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "outpage_notify.h"

/* QEMU's ivshmem (its manual, "Inter-VM Shared Memory Flat Device"): the shared memory is BAR 2. */
#define IVSHMEM_VENDOR 0x1af4
#define IVSHMEM_DEVICE 0x1110
#define IVSHMEM_BAR 2
/* Pages that could not be hidden yet, at most: those in the LRU batches of 64 CPUs, of 15 pages each, and as many that are locked. */
#define RETRIES 2048
/* Times that a page is tried again: with a drain every 10 ms, 1 s. An LRU batch of an idle CPU may stay longer; its page is then left alone. */
#define TRIES 100
/* Drains between two looks for pages that were freed while they were hidden. */
#define PURGE_EVERY 100

static bool hide = true;
module_param(hide, bool, 0644);
MODULE_PARM_DESC(hide, "hide pages that the host has paged out; 0: only count (default 1)");
static unsigned int interval_ms = 10;
module_param(interval_ms, uint, 0644);
MODULE_PARM_DESC(interval_ms, "milliseconds between two drains of the rings, at least 1 (default 10)");
static unsigned int cap_percent = 90;
module_param(cap_percent, uint, 0644);
MODULE_PARM_DESC(cap_percent, "most pages that are hidden, in percent of RAM, 1 to 100 (default 90)");
static unsigned int rest_ms = 5000;
module_param(rest_ms, uint, 0644);
MODULE_PARM_DESC(rest_ms, "milliseconds in which nothing is hidden after memory ran out (default 5000)");

struct retry {
	u32 frame;
	u32 tries;
};

struct outpage_guest {
	struct outpage_notify notify;
	void *area;
	u64 area_bytes;
	bool attached, refused;
	/* One bit a frame: hidden by us, unless it was freed since. */
	unsigned long *hidden_map;
	struct mutex lock;
	struct workqueue_struct *queue;
	struct delayed_work work;
	struct notifier_block oom;
	struct proc_dir_entry *proc;
	struct retry retries[RETRIES];
	unsigned int retry_count;
	/* Un-hidden and not put back on its list yet. */
	struct folio_batch batch;
	unsigned long rests_until;
	bool rests, capped, look_at_all;
	/* Counters, in pages but for drains, scans and ooms. */
	unsigned long hidden, hidden_ever, unhidden, freed, skipped, over_cap, rescued, ooms, drains, scans;
};

static struct outpage_guest *the_guest;
static atomic64_t swap_writes = ATOMIC64_INIT(0), double_paged = ATOMIC64_INIT(0);

/* The folio of a frame that is in use and its own, with a reference; NULL otherwise. */
static struct folio *folio_of(unsigned long pfn)
{
	struct page *page = pfn_to_online_page(pfn);
	struct folio *folio;

	if (!page)
		return NULL;
	folio = page_folio(page);
	if (!folio_try_get(folio))
		return NULL;
	if (page_folio(page) == folio && !folio_test_large(folio))
		return folio;
	folio_put(folio);
	return NULL;
}

enum hiding { HIDDEN, NOTHING_TO_HIDE, LATER };

static enum hiding hide_folio(struct folio *folio)
{
	if (!folio_test_anon(folio))
		return NOTHING_TO_HIDE;
	/* Not on a list yet: in a batch of some CPU. */
	if (!folio_test_lru(folio) || !folio_trylock(folio))
		return LATER;
	/*
	 * Of what is written the host has the contents, or the writing would wait. A page in the swap cache is hidden: most are dirty by
	 * their mappings alone, and the kernel gives the slot of one that is mlocked free.
	 */
	if (!folio_test_anon(folio) || folio_test_writeback(folio) || folio_test_mlocked(folio) ||
	    folio_test_unevictable(folio)) {
		folio_unlock(folio);
		return NOTHING_TO_HIDE;
	}
	folio_set_mlocked(folio);
	zone_stat_mod_folio(folio, NR_MLOCK, 1);
	folio_unlock(folio);
	return HIDDEN;
}

static void hide_frame(struct outpage_guest *g, u32 frame, u32 tries)
{
	struct folio *folio;
	enum hiding done = NOTHING_TO_HIDE;

	if (test_bit(frame, g->hidden_map))
		return;
	if (!hide || g->rests || g->hidden >= totalram_pages() / 100 * clamp(cap_percent, 1u, 100u)) {
		g->over_cap += hide && !g->rests;
		g->capped |= hide;
		return;
	}
	folio = folio_of(frame);
	if (folio) {
		done = hide_folio(folio);
		if (done == HIDDEN) {
			set_bit(frame, g->hidden_map);
			g->hidden++;
			g->hidden_ever++;
		}
		folio_put(folio);
	}
	if (done == LATER && tries < TRIES && g->retry_count < RETRIES)
		g->retries[g->retry_count++] = (struct retry){ frame, tries + 1 };
	else if (done != HIDDEN)
		g->skipped++;
}

/* Those that were un-hidden go back to the lists that reclaim looks at. */
static void put_back(struct outpage_guest *g)
{
	unsigned int i;

	if (!folio_batch_count(&g->batch))
		return;
	check_move_unevictable_folios(&g->batch);
	for (i = 0; i < folio_batch_count(&g->batch); i++)
		folio_put(g->batch.folios[i]);
	folio_batch_init(&g->batch);
}

/*
 * Whether it was hidden still, and not freed since. A page that was freed and then locked by a program looks the same; reclaim finds that
 * its mapping is locked, and hides it again.
 */
static bool unhide_frame(struct outpage_guest *g, u32 frame)
{
	struct folio *folio;

	if (!test_and_clear_bit(frame, g->hidden_map))
		return false;
	g->hidden--;
	folio = folio_of(frame);
	if (!folio || !folio_test_anon(folio) || !folio_test_clear_mlocked(folio)) {
		if (folio)
			folio_put(folio);
		g->freed++;
		return false;
	}
	zone_stat_mod_folio(folio, NR_MLOCK, -1);
	g->unhidden++;
	if (!folio_batch_add(&g->batch, folio))
		put_back(g);
	return true;
}

static unsigned long unhide_all(struct outpage_guest *g)
{
	unsigned long frame, count = 0;

	for_each_set_bit(frame, g->hidden_map, g->notify.frames)
		count += unhide_frame(g, frame);
	put_back(g);
	g->retry_count = 0;
	return count;
}

/* Forgets the pages that were freed while they were hidden. */
static void purge(struct outpage_guest *g)
{
	unsigned long frame;

	for_each_set_bit(frame, g->hidden_map, g->notify.frames) {
		struct folio *folio = folio_of(frame);

		if (!folio || !folio_test_anon(folio) || !folio_test_mlocked(folio)) {
			clear_bit(frame, g->hidden_map);
			g->hidden--;
			g->freed++;
		}
		if (folio)
			folio_put(folio);
	}
}

static void told(void *context, u32 frame, int out)
{
	struct outpage_guest *g = context;

	if (out)
		hide_frame(g, frame, 0);
	else
		unhide_frame(g, frame);
}

static void try_again(struct outpage_guest *g)
{
	unsigned int i, count = g->retry_count;

	g->retry_count = 0;
	for (i = 0; i < count; i++) {
		struct retry retry = g->retries[i];

		/* At most as many are put in as were taken out. */
		if (outpage_notify_is_out(&g->notify, retry.frame))
			hide_frame(g, retry.frame, retry.tries);
	}
}

static void look_at_all(struct outpage_guest *g)
{
	u32 frame;

	g->capped = false;
	g->scans++;
	for (frame = 0; frame < g->notify.frames; frame++) {
		told(g, frame, outpage_notify_is_out(&g->notify, frame));
		cond_resched();
	}
}

static void attach(struct outpage_guest *g)
{
	enum outpage_notify_error error = outpage_notify_attach(&g->notify, g->area, g->area_bytes);

	/* The host makes it when it begins to page. */
	if (error == OUTPAGE_NOTIFY_NO_AREA || g->refused)
		return;
	if (error) {
		pr_err("outpage: the shared memory is %s\n",
		       error == OUTPAGE_NOTIFY_OTHER_VERSION ? "of another version" : "damaged");
		g->refused = true;
		return;
	}
	g->hidden_map = vzalloc(BITS_TO_LONGS((u64)g->notify.frames) * sizeof(long));
	if (!g->hidden_map)
		return;
	pr_info("outpage: the host tells of %u frames by rings of %u entries\n", g->notify.frames,
		g->notify.entries);
	smp_store_release(&g->attached, true);
}

static void report(struct outpage_guest *g)
{
	struct outpage_notify_header *h = g->area;

	WRITE_ONCE(h->hidden, g->hidden);
	WRITE_ONCE(h->skipped, g->skipped);
	WRITE_ONCE(h->rescued, g->rescued);
}

static void drain(struct work_struct *work)
{
	struct outpage_guest *g = container_of(work, struct outpage_guest, work.work);
	unsigned long cap;

	mutex_lock(&g->lock);
	if (!g->attached)
		attach(g);
	if (g->attached) {
		cap = totalram_pages() / 100 * clamp(cap_percent, 1u, 100u);
		if (g->rests && time_after(jiffies, g->rests_until)) {
			g->rests = false;
			g->look_at_all = true;
		}
		if (g->drains++ % PURGE_EVERY == 0)
			purge(g);
		try_again(g);
		g->scans += outpage_notify_drain(&g->notify, told, g);
		/* What found the cap reached was not hidden, and no entry tells of it again. */
		if (g->look_at_all || (g->capped && !g->rests && g->hidden < cap - cap / 8))
			look_at_all(g);
		g->look_at_all = false;
		put_back(g);
		report(g);
	}
	mutex_unlock(&g->lock);
	queue_delayed_work(g->queue, &g->work, max(1ul, msecs_to_jiffies(interval_ms)));
}

/* Before a program is killed because memory ran out, reclaim gets all pages back. */
static int out_of_memory_soon(struct notifier_block *block, unsigned long unused, void *freed)
{
	struct outpage_guest *g = container_of(block, struct outpage_guest, oom);
	unsigned long count;

	mutex_lock(&g->lock);
	if (g->attached) {
		count = unhide_all(g);
		g->rests = true;
		g->rests_until = jiffies + msecs_to_jiffies(rest_ms);
		g->rescued += count;
		g->ooms++;
		report(g);
		/* Not free yet, but the allocation is worth another try. */
		*(unsigned long *)freed += count;
	}
	mutex_unlock(&g->lock);
	return NOTIFY_OK;
}

/* swap_writepage(page, wbc): a page of the guest goes to its swap space. If the host has it out, the host reads it for that alone. */
static int page_is_written(struct kprobe *probe, struct pt_regs *regs)
{
	struct outpage_guest *g = READ_ONCE(the_guest);
	struct page *page = (struct page *)regs_get_kernel_argument(regs, 0);

	atomic64_inc(&swap_writes);
	if (g && smp_load_acquire(&g->attached) && outpage_notify_is_out(&g->notify, page_to_pfn(page)))
		atomic64_inc(&double_paged);
	return 0;
}

static struct kprobe probe = { .symbol_name = "swap_writepage", .pre_handler = page_is_written };
static bool probed;

static int show(struct seq_file *file, void *unused)
{
	struct outpage_guest *g = file->private;

	mutex_lock(&g->lock);
	if (g->attached)
		purge(g);
	seq_printf(file, "attached %d\nhidden %lu\nhidden_ever %lu\nunhidden %lu\nfreed %lu\n", g->attached, g->hidden,
		   g->hidden_ever, g->unhidden, g->freed);
	seq_printf(file, "skipped %lu\nover_cap %lu\nretrying %u\nrescued %lu\nooms %lu\n", g->skipped, g->over_cap,
		   g->retry_count, g->rescued, g->ooms);
	seq_printf(file, "drains %lu\nscans %lu\n", g->drains, g->scans);
	if (probed)
		seq_printf(file, "swap_writes %lld\ndouble_paged %lld\n", (s64)atomic64_read(&swap_writes),
			   (s64)atomic64_read(&double_paged));
	mutex_unlock(&g->lock);
	return 0;
}

static int begin(struct pci_dev *device, struct outpage_guest *g)
{
	int error;

	mutex_init(&g->lock);
	folio_batch_init(&g->batch);
	INIT_DELAYED_WORK(&g->work, drain);
	g->oom.notifier_call = out_of_memory_soon;
	/* It drains while there is no memory. */
	g->queue = alloc_ordered_workqueue("outpage", WQ_MEM_RECLAIM);
	g->proc = g->queue ? proc_create_single_data("outpage", 0444, NULL, show, g) : NULL;
	if (!g->proc) {
		if (g->queue)
			destroy_workqueue(g->queue);
		return -ENOMEM;
	}
	error = register_oom_notifier(&g->oom);
	if (error) {
		proc_remove(g->proc);
		destroy_workqueue(g->queue);
		return error;
	}
	WRITE_ONCE(the_guest, g);
	probed = register_kprobe(&probe) == 0;
	if (!probed)
		pci_info(device, "swap_writepage cannot be probed: double paging is not counted\n");
	queue_delayed_work(g->queue, &g->work, 0);
	return 0;
}

static int found(struct pci_dev *device, const struct pci_device_id *id)
{
	struct outpage_guest *g;
	int error;

	if (the_guest)
		return -EBUSY;
	error = pci_enable_device(device);
	if (error)
		return error;
	error = -ENOMEM;
	g = vzalloc(sizeof(*g));
	if (!g)
		goto disable;
	g->area_bytes = pci_resource_len(device, IVSHMEM_BAR);
	g->area = memremap(pci_resource_start(device, IVSHMEM_BAR), g->area_bytes, MEMREMAP_WB);
	if (!g->area)
		goto release;
	error = begin(device, g);
	if (error)
		goto unmap;
	pci_set_drvdata(device, g);
	return 0;
unmap:
	memunmap(g->area);
release:
	vfree(g);
disable:
	pci_disable_device(device);
	return error;
}

static void removed(struct pci_dev *device)
{
	struct outpage_guest *g = pci_get_drvdata(device);

	if (probed)
		unregister_kprobe(&probe);
	WRITE_ONCE(the_guest, NULL);
	unregister_oom_notifier(&g->oom);
	proc_remove(g->proc);
	cancel_delayed_work_sync(&g->work);
	destroy_workqueue(g->queue);
	if (g->attached) {
		unhide_all(g);
		report(g);
	}
	vfree(g->hidden_map);
	memunmap(g->area);
	pci_disable_device(device);
	vfree(g);
}

static const struct pci_device_id devices[] = {
	{ PCI_DEVICE(IVSHMEM_VENDOR, IVSHMEM_DEVICE) },
	{ },
};
MODULE_DEVICE_TABLE(pci, devices);

static struct pci_driver outpage_driver = {
	.name = "outpage_guest",
	.id_table = devices,
	.probe = found,
	.remove = removed,
};
module_pci_driver(outpage_driver);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Hides pages that Outpage has paged out on the host from the guest's own paging");
