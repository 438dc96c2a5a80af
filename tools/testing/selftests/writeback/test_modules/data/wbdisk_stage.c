// SPDX-License-Identifier: GPL-2.0
/*
 * Data on its way in: copied aside when the command is issued, in atomic
 * context, so that nothing can fail when it completes.
 */
#include <kunit/visibility.h>
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "wbdisk_store.h"

static bool holds_data(const struct wbd_store *store, u64 page)
{
	struct wbd_version **top = wbd_store_top(store, page);

	return top && *top && (*top)->data;
}

/* ---- staging ------------------------------------------------------------- */

static bool make_leaf(struct wbd_store *store, u64 page)
{
	u64 i = page / WBD_LEAF_PAGES;
	unsigned long flags, leaf;

	if (READ_ONCE(store->leaf[i]))
		return true;
	leaf = get_zeroed_page(WBD_ATOMIC);
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
EXPORT_SYMBOL_IF_KUNIT(wbd_stage_begin);

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
	v = wbd_version_new(page);
	if (!v)
		return BLK_STS_RESOURCE;
	v->data = (void *)__get_free_page(WBD_ATOMIC);
	if (!v->data) {
		wbd_version_free(v);
		return BLK_STS_RESOURCE;
	}
	if (stage->last)
		stage->last->older = v;
	else
		stage->first = v;
	stage->last = v;
	return BLK_STS_OK;
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

	if (bytes == PAGE_SIZE && wbd_page_is_zero(data))
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
EXPORT_SYMBOL_IF_KUNIT(wbd_stage_add);

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
EXPORT_SYMBOL_IF_KUNIT(wbd_stage_edges);

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
		wbd_version_free(v);
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
EXPORT_SYMBOL_IF_KUNIT(wbd_stage_drop);
