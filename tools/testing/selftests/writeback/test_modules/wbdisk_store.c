// SPDX-License-Identifier: GPL-2.0
/*
 * Data is copied twice on its way in: wbd_stage_add() copies it aside when the
 * command is issued, wbd_store_install() makes it visible when the command
 * completes.  All that can fail is done at the first, in atomic context.
 *
 * Each page is a chain of versions, the newest first.  Reads see the newest.
 * The last of a chain may be durable, those in front of it are cached: a power
 * cut removes them, and a flush or the end of their program makes them durable,
 * which removes everything older.
 */
#include <kunit/visibility.h>
#include <linux/bitmap.h>
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "wbdisk_store.h"

#define LEAF_PAGES	(PAGE_SIZE / sizeof(void *))
/* Without direct reclaim: a disk must not wait for itself. */
#define ATOMIC		(GFP_NOWAIT | __GFP_NOWARN)

/**
 * struct wbd_version - what one page contained from some write on
 * @older: what it contained before, if that may come back
 * @cached: entry of the store's list, empty if this version is durable
 * @data: NULL for zeroes
 * @page: page number
 * @seq: number of the write that made it visible
 * @log_end: when the model's log has retired this far it is durable
 * @pieces: staged only: written in pieces, which may all be zeroes
 * @sectors: staged only: the sectors that were written
 */
struct wbd_version {
	struct wbd_version *older;	/* staged: the next of the same write */
	struct list_head cached;
	void *data;
	u64 page;
	u64 seq;
	u64 log_end;
	bool pieces;
	DECLARE_BITMAP(sectors, PAGE_SECTORS);
};

static struct kmem_cache *version_cache;

int wbd_store_module_init(void)
{
	version_cache = KMEM_CACHE(wbd_version, 0);
	return version_cache ? 0 : -ENOMEM;
}

void wbd_store_module_exit(void)
{
	kmem_cache_destroy(version_cache);
}

static struct wbd_version *new_version(u64 page)
{
	struct wbd_version *v = kmem_cache_alloc(version_cache, ATOMIC);

	if (!v)
		return NULL;
	v->older = NULL;
	INIT_LIST_HEAD(&v->cached);
	v->data = NULL;
	v->page = page;
	v->pieces = false;
	bitmap_zero(v->sectors, PAGE_SECTORS);
	return v;
}

static void free_version(struct wbd_version *v)
{
	free_page((unsigned long)v->data);
	kmem_cache_free(version_cache, v);
}

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
	store->leaf = kvcalloc(DIV_ROUND_UP_ULL(store->pages, LEAF_PAGES),
			       sizeof(*store->leaf), GFP_KERNEL);
	return store->leaf ? 0 : -ENOMEM;
}

/**
 * wbd_store_destroy() - free all data
 * @store: initialised or all zeroes; nothing is staged
 */
void wbd_store_destroy(struct wbd_store *store)
{
	u64 i, n = DIV_ROUND_UP_ULL(store->pages, LEAF_PAGES);
	unsigned int j;

	if (!store->leaf)
		return;
	for (i = 0; i < n; i++) {
		if (!store->leaf[i])
			continue;
		for (j = 0; j < LEAF_PAGES; j++) {
			struct wbd_version *v = store->leaf[i][j], *older;

			for (; v; v = older) {
				older = v->older;
				free_version(v);
			}
		}
		free_page((unsigned long)store->leaf[i]);
		cond_resched();
	}
	kvfree(store->leaf);
	memset(store, 0, sizeof(*store));
}

/* Where the newest version of a page is; NULL if its leaf does not exist. */
static struct wbd_version **top_of(const struct wbd_store *store, u64 page)
{
	struct wbd_version **leaf = store->leaf[page / LEAF_PAGES];

	return leaf ? &leaf[page % LEAF_PAGES] : NULL;
}

static bool holds_data(const struct wbd_store *store, u64 page)
{
	struct wbd_version **top = top_of(store, page);

	return top && *top && (*top)->data;
}

/* ---- staging ------------------------------------------------------------- */

static bool make_leaf(struct wbd_store *store, u64 page)
{
	u64 i = page / LEAF_PAGES;
	unsigned long flags, leaf;

	if (READ_ONCE(store->leaf[i]))
		return true;
	leaf = get_zeroed_page(ATOMIC);
	if (!leaf)
		return false;
	spin_lock_irqsave(&store->lock, flags);
	if (!store->leaf[i]) {
		store->leaf[i] = (struct wbd_version **)leaf;
		leaf = 0;
	}
	spin_unlock_irqrestore(&store->lock, flags);
	free_page(leaf);
	return true;
}

/**
 * wbd_stage_begin() - start to stage a write
 * @store: the disk's data
 * @stage: to be filled by wbd_stage_add() in ascending order
 */
void wbd_stage_begin(struct wbd_store *store, struct wbd_stage *stage)
{
	memset(stage, 0, sizeof(*stage));
	stage->epoch = READ_ONCE(store->epoch);
}

/* Reserve room for a page of data unless it replaces one. */
static bool reserve(struct wbd_store *store, struct wbd_stage *stage, u64 page)
{
	unsigned long flags;
	bool ok = true;

	spin_lock_irqsave(&store->lock, flags);
	if (!holds_data(store, page)) {
		ok = store->kept + store->reserved < store->cap;
		if (ok) {
			store->reserved++;
			stage->reserved++;
		}
	}
	spin_unlock_irqrestore(&store->lock, flags);
	return ok;
}

static blk_status_t stage_page(struct wbd_store *store, struct wbd_stage *stage,
			       u64 page)
{
	struct wbd_version *v;

	if (!make_leaf(store, page))
		return BLK_STS_RESOURCE;
	if (!reserve(store, stage, page))
		return BLK_STS_NOSPC;
	v = new_version(page);
	if (!v)
		return BLK_STS_RESOURCE;
	v->data = (void *)__get_free_page(ATOMIC);
	if (!v->data) {
		free_version(v);
		return BLK_STS_RESOURCE;
	}
	if (stage->last)
		stage->last->older = v;
	else
		stage->first = v;
	stage->last = v;
	return BLK_STS_OK;
}

/* Eight words at a time: memchr_inv() costs the test machine three times this. */
static bool page_is_zero(const void *data)
{
	const unsigned long *p = data, *end = data + PAGE_SIZE;

	for (; p < end; p += 8)
		if (p[0] | p[1] | p[2] | p[3] | p[4] | p[5] | p[6] | p[7])
			return false;
	return true;
}

/**
 * wbd_stage_add() - stage a piece of a write
 * @store: the disk's data
 * @stage: started with wbd_stage_begin()
 * @pos: its first byte, a multiple of 512
 * @data: long aligned
 * @bytes: a multiple of 512; it does not cross a page of the store
 *
 * Return: BLK_STS_OK, BLK_STS_RESOURCE if memory is short now, or BLK_STS_NOSPC
 * if the store is full.
 */
blk_status_t wbd_stage_add(struct wbd_store *store, struct wbd_stage *stage,
			   u64 pos, const void *data, u32 bytes)
{
	u64 page = pos >> PAGE_SHIFT;
	u32 off = offset_in_page(pos);
	blk_status_t status;

	if (bytes == PAGE_SIZE && page_is_zero(data))
		return BLK_STS_OK;
	if (!stage->last || stage->last->page != page) {
		status = stage_page(store, stage, page);
		if (status)
			return status;
	}
	if (bytes == PAGE_SIZE) {
		copy_page(stage->last->data, (void *)data);
	} else {
		memcpy(stage->last->data + off, data, bytes);
		stage->last->pieces = true;
	}
	bitmap_set(stage->last->sectors, off / SECTOR_SIZE, bytes / SECTOR_SIZE);
	return BLK_STS_OK;
}

/**
 * wbd_stage_edges() - stage the zeroes of a range that fill no whole page
 * @store: the disk's data
 * @stage: started with wbd_stage_begin()
 * @pos: first byte
 * @bytes: length
 *
 * Return: as wbd_stage_add().
 */
blk_status_t wbd_stage_edges(struct wbd_store *store, struct wbd_stage *stage,
			     u64 pos, u64 bytes)
{
	static const unsigned long zeroes[PAGE_SIZE / sizeof(long)];
	u64 end = pos + bytes;
	blk_status_t status = BLK_STS_OK;

	if (offset_in_page(pos)) {
		u32 part = min_t(u64, PAGE_SIZE - offset_in_page(pos), bytes);

		status = wbd_stage_add(store, stage, pos, zeroes, part);
		pos += part;
	}
	if (!status && pos < end && offset_in_page(end))
		status = wbd_stage_add(store, stage, round_down(end, PAGE_SIZE),
				       zeroes, offset_in_page(end));
	return status;
}

/**
 * wbd_stage_drop() - free what was staged and not installed
 * @store: the disk's data
 * @stage: empty afterwards
 */
void wbd_stage_drop(struct wbd_store *store, struct wbd_stage *stage)
{
	struct wbd_version *v, *next;
	unsigned long flags;

	for (v = stage->first; v; v = next) {
		next = v->older;
		free_version(v);
	}
	stage->first = NULL;
	stage->last = NULL;
	if (!stage->reserved)
		return;
	spin_lock_irqsave(&store->lock, flags);
	store->reserved -= stage->reserved;
	spin_unlock_irqrestore(&store->lock, flags);
	stage->reserved = 0;
}

/* ---- versions ------------------------------------------------------------ */

static void forget(struct wbd_store *store, struct wbd_version *v)
{
	if (!list_empty(&v->cached)) {
		list_del(&v->cached);
		store->nr_cached--;
	}
	if (v->data)
		store->kept--;
	free_version(v);
}

/* A version is on the medium: nothing older comes back. */
static void make_durable(struct wbd_store *store, struct wbd_version *v)
{
	struct wbd_version **top = top_of(store, v->page), *old, *older;

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
	struct wbd_version **p = top_of(store, v->page);

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
	if (v->pieces && page_is_zero(v->data)) {
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
	struct wbd_version **top = top_of(store, page);
	struct wbd_version *v, *older;

	if (!top || !*top)
		return;
	v = durable ? NULL : new_version(page);
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
		u64 i = page / LEAF_PAGES;

		if (v && (v->page <= page || page >= end)) {
			struct wbd_version **top = top_of(store, v->page);

			next = v->older;
			page = max(page, v->page + 1);
			complete_page(v, *top);
			put_version(store, top, v, durable, log_end);
			v = next;
		} else if (!store->leaf[i]) {
			page = min((i + 1) * LEAF_PAGES, v ? v->page : end);
		} else {
			put_zeroes(store, page++, durable, log_end);
		}
	}
	spin_unlock_irqrestore(&store->lock, flags);
	memset(stage, 0, sizeof(*stage));
	return true;
}

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
	top = top_of(store, pos >> PAGE_SHIFT);
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

/**
 * wbd_store_seq() - number of writes visible now, for wbd_store_flush()
 * @store: the disk's data
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

EXPORT_SYMBOL_IF_KUNIT(wbd_store_init);
EXPORT_SYMBOL_IF_KUNIT(wbd_store_destroy);
EXPORT_SYMBOL_IF_KUNIT(wbd_stage_begin);
EXPORT_SYMBOL_IF_KUNIT(wbd_stage_add);
EXPORT_SYMBOL_IF_KUNIT(wbd_stage_edges);
EXPORT_SYMBOL_IF_KUNIT(wbd_stage_drop);
EXPORT_SYMBOL_IF_KUNIT(wbd_store_install);
EXPORT_SYMBOL_IF_KUNIT(wbd_store_read);
EXPORT_SYMBOL_IF_KUNIT(wbd_store_seq);
EXPORT_SYMBOL_IF_KUNIT(wbd_store_flush);
EXPORT_SYMBOL_IF_KUNIT(wbd_store_retire);
EXPORT_SYMBOL_IF_KUNIT(wbd_store_cut);
