// SPDX-License-Identifier: GPL-2.0
/*
 * Data is stored in two steps: wbd_stage_add() copies it aside when the command
 * is issued, wbd_store_install() makes it visible when the command completes.
 *
 * Each page is a chain of versions, the newest first.  Reads see the newest.
 * The last of a chain may be durable, those in front of it are cached: a power
 * cut removes them, and a flush or the end of their program makes them durable,
 * which removes everything older.
 */
#include <kunit/visibility.h>
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "wbdisk_store.h"

/**
 * wbd_store_init() - an empty store
 * @store: what to set up
 * @bytes: size of the disk
 *
 * The caller sets @store->cap and seeds @store->rnd.
 *
 * Return: 0 or -ENOMEM.
 */
int wbd_store_init(struct wbd_store *store, u64 bytes)
{
	memset(store, 0, sizeof(*store));
	spin_lock_init(&store->lock);
	INIT_LIST_HEAD(&store->cached);
	store->pages = DIV_ROUND_UP_ULL(bytes, PAGE_SIZE);
	store->leaf = kvcalloc(DIV_ROUND_UP_ULL(store->pages, WBD_LEAF_PAGES),
			       sizeof(*store->leaf), GFP_KERNEL);
	return store->leaf ? 0 : -ENOMEM;
}
EXPORT_SYMBOL_IF_KUNIT(wbd_store_init);

/**
 * wbd_store_destroy() - free all data
 * @store: initialised or all zeroes; nothing is staged
 */
void wbd_store_destroy(struct wbd_store *store)
{
	u64 i, n = DIV_ROUND_UP_ULL(store->pages, WBD_LEAF_PAGES);
	unsigned int j;

	if (!store->leaf)
		return;
	for (i = 0; i < n; i++) {
		if (!store->leaf[i])
			continue;
		for (j = 0; j < WBD_LEAF_PAGES; j++) {
			struct wbd_version *v = store->leaf[i][j], *older;

			for (; v; v = older) {
				older = v->older;
				wbd_version_free(v);
			}
		}
		free_page((unsigned long)store->leaf[i]);
		cond_resched();
	}
	kvfree(store->leaf);
	memset(store, 0, sizeof(*store));
}
EXPORT_SYMBOL_IF_KUNIT(wbd_store_destroy);

/* ---- versions ------------------------------------------------------------ */

static void forget(struct wbd_store *store, struct wbd_version *v)
{
	if (!list_empty(&v->cached)) {
		list_del(&v->cached);
		store->nr_cached--;
	}
	if (v->data)
		store->kept--;
	wbd_version_free(v);
}

/* A version is on the medium: nothing older comes back. */
static void make_durable(struct wbd_store *store, struct wbd_version *v)
{
	struct wbd_version **top = wbd_store_top(store, v->page), *old, *older;

	if (!list_empty(&v->cached)) {
		list_del_init(&v->cached);
		store->nr_cached--;
	}
	for (old = v->older; old; old = older) {
		older = old->older;
		forget(store, old);
	}
	v->older = NULL;
	/* Durable zeroes need no version. */
	if (!v->data && *top == v) {
		*top = NULL;
		forget(store, v);
	}
}

/* A cached version is lost. */
static void lose(struct wbd_store *store, struct wbd_version *v)
{
	struct wbd_version **p = wbd_store_top(store, v->page);

	while (*p != v)
		p = &(*p)->older;
	*p = v->older;
	forget(store, v);
}

/* Fill the sectors that a write left alone from the version under it. */
static void complete_page(struct wbd_version *v, const struct wbd_version *under)
{
	unsigned int s;

	for_each_clear_bit(s, v->sectors, PAGE_SECTORS) {
		u32 off = s * SECTOR_SIZE;

		if (under && under->data)
			memcpy(v->data + off, under->data + off, SECTOR_SIZE);
		else
			memset(v->data + off, 0, SECTOR_SIZE);
	}
	if (v->pieces && wbd_page_is_zero(v->data)) {
		free_page((unsigned long)v->data);
		v->data = NULL;
	}
}

static void put_version(struct wbd_store *store, struct wbd_version **top,
			struct wbd_version *v, bool durable, u64 log_end)
{
	v->older = *top;
	v->seq = store->seq;
	v->log_end = log_end;
	*top = v;
	if (v->data)
		store->kept++;
	if (durable) {
		make_durable(store, v);
		return;
	}
	list_add_tail(&v->cached, &store->cached);
	store->nr_cached++;
}

static void put_zeroes(struct wbd_store *store, u64 page, bool durable,
		       u64 log_end)
{
	struct wbd_version **top = wbd_store_top(store, page);
	struct wbd_version *v, *older;

	if (!top || !*top)
		return;
	v = durable ? NULL : wbd_version_new(page);
	if (v) {
		put_version(store, top, v, false, log_end);
		return;
	}
	/* Without memory for its history the page is zero for good. */
	for (v = *top, *top = NULL; v; v = older) {
		older = v->older;
		forget(store, v);
	}
}

/**
 * wbd_store_install() - make a write visible
 * @store: the disk's data
 * @stage: its data, empty afterwards; pages of the range not in it become zero
 * @pos: first byte
 * @bytes: length; partial pages at the ends are in @stage or left alone
 * @durable: it is on the medium already
 * @log_end: otherwise: see wbd_sim_retired()
 *
 * Return: false if the power was cut since it was staged; nothing is done then.
 */
bool wbd_store_install(struct wbd_store *store, struct wbd_stage *stage,
		       u64 pos, u64 bytes, bool durable, u64 log_end)
{
	u64 page = DIV_ROUND_UP_ULL(pos, PAGE_SIZE);
	u64 end = (pos + bytes) >> PAGE_SHIFT;
	struct wbd_version *v = stage->first, *next;
	unsigned long flags;

	spin_lock_irqsave(&store->lock, flags);
	if (stage->epoch != store->epoch) {
		spin_unlock_irqrestore(&store->lock, flags);
		wbd_stage_drop(store, stage);
		return false;
	}
	store->seq++;
	store->reserved -= stage->reserved;
	while (v || page < end) {
		u64 i = page / WBD_LEAF_PAGES;

		if (v && (v->page <= page || page >= end)) {
			struct wbd_version **top = wbd_store_top(store, v->page);

			next = v->older;
			page = max(page, v->page + 1);
			complete_page(v, *top);
			put_version(store, top, v, durable, log_end);
			v = next;
		} else if (!store->leaf[i]) {
			page = min((i + 1) * WBD_LEAF_PAGES, v ? v->page : end);
		} else {
			put_zeroes(store, page++, durable, log_end);
		}
	}
	spin_unlock_irqrestore(&store->lock, flags);
	memset(stage, 0, sizeof(*stage));
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(wbd_store_install);

/**
 * wbd_store_read() - copy what completed writes left
 * @store: the disk's data
 * @pos: first byte
 * @data: where to
 * @bytes: length; it does not cross a page of the store
 */
void wbd_store_read(struct wbd_store *store, u64 pos, void *data, u32 bytes)
{
	struct wbd_version **top;
	const void *from = NULL;
	unsigned long flags;

	spin_lock_irqsave(&store->lock, flags);
	top = wbd_store_top(store, pos >> PAGE_SHIFT);
	if (top && *top)
		from = (*top)->data;
	if (!from)
		memset(data, 0, bytes);
	else if (bytes == PAGE_SIZE)
		copy_page(data, (void *)from);
	else
		memcpy(data, from + offset_in_page(pos), bytes);
	spin_unlock_irqrestore(&store->lock, flags);
}
EXPORT_SYMBOL_IF_KUNIT(wbd_store_read);

/**
 * wbd_store_seq() - position for wbd_store_flush()
 * @store: the disk's data
 *
 * Return: number of writes visible now.
 */
u64 wbd_store_seq(struct wbd_store *store)
{
	unsigned long flags;
	u64 seq;

	spin_lock_irqsave(&store->lock, flags);
	seq = store->seq;
	spin_unlock_irqrestore(&store->lock, flags);
	return seq;
}
EXPORT_SYMBOL_IF_KUNIT(wbd_store_seq);

/**
 * wbd_store_flush() - a flush completed
 * @store: the disk's data
 * @seq: wbd_store_seq() when it arrived
 * @epoch: @store->epoch then
 *
 * Return: false if the power was cut since; nothing is done then.
 */
bool wbd_store_flush(struct wbd_store *store, u64 seq, u32 epoch)
{
	struct wbd_version *v;
	unsigned long flags;
	bool ok;

	spin_lock_irqsave(&store->lock, flags);
	ok = epoch == store->epoch;
	while (ok) {
		v = list_first_entry_or_null(&store->cached, struct wbd_version,
					     cached);
		if (!v || v->seq > seq)
			break;
		make_durable(store, v);
	}
	spin_unlock_irqrestore(&store->lock, flags);
	return ok;
}
EXPORT_SYMBOL_IF_KUNIT(wbd_store_flush);

/**
 * wbd_store_retire() - the medium has taken in some of the cache
 * @store: the disk's data
 * @log_end: wbd_sim_retired()
 */
void wbd_store_retire(struct wbd_store *store, u64 log_end)
{
	struct wbd_version *v;
	unsigned long flags;

	if (list_empty(&store->cached))
		return;
	spin_lock_irqsave(&store->lock, flags);
	for (;;) {
		v = list_first_entry_or_null(&store->cached, struct wbd_version,
					     cached);
		if (!v || v->log_end > log_end)
			break;
		make_durable(store, v);
	}
	spin_unlock_irqrestore(&store->lock, flags);
}
EXPORT_SYMBOL_IF_KUNIT(wbd_store_retire);

/**
 * wbd_store_cut() - the power goes
 * @store: the disk's data
 * @keep_ppm: share of the cached pages that are on the medium by chance
 * @retired: wbd_sim_retired() at that moment
 *
 * What is staged now can no longer be installed.
 */
void wbd_store_cut(struct wbd_store *store, u32 keep_ppm, u64 retired)
{
	struct wbd_version *v;
	unsigned long flags;

	wbd_store_retire(store, retired);
	spin_lock_irqsave(&store->lock, flags);
	store->epoch++;
	while (!list_empty(&store->cached)) {
		v = list_first_entry(&store->cached, struct wbd_version, cached);
		if (keep_ppm && prandom_u32_state(&store->rnd) % 1000000 < keep_ppm)
			make_durable(store, v);
		else
			lose(store, v);
	}
	spin_unlock_irqrestore(&store->lock, flags);
}
EXPORT_SYMBOL_IF_KUNIT(wbd_store_cut);
