/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The data of a disk: sparse, in memory, with the history that a power cut
 * needs.  All-zero pages are not kept.
 */
#ifndef _WBDISK_STORE_H
#define _WBDISK_STORE_H

#include <linux/bitmap.h>
#include <linux/blk_types.h>
#include <linux/list.h>
#include <linux/prandom.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* Without direct reclaim: a disk must not wait for itself. */
#define WBD_ATOMIC	(GFP_NOWAIT | __GFP_NOWARN)

#define WBD_LEAF_PAGES	(PAGE_SIZE / sizeof(void *))

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

/**
 * struct wbd_store - data of one disk
 * @lock: protects everything below
 * @leaf: directory; leaf i holds the newest versions of the pages from
 *	i * WBD_LEAF_PAGES on.  A leaf stays until the store is destroyed.
 * @pages: number of pages of the disk
 * @cap: most pages of data to keep
 * @kept: pages of data kept
 * @reserved: pages of data staged for places that are empty
 * @cached: versions that a power cut would lose, oldest first
 * @nr_cached: their number
 * @seq: number of writes made visible
 * @epoch: number of power cuts; what was staged before one is never installed
 * @rnd: chooses what survives a power cut
 */
struct wbd_store {
	spinlock_t lock;	/* all below */
	struct wbd_version ***leaf;
	u64 pages;
	u64 cap;
	u64 kept;
	u64 reserved;
	struct list_head cached;
	u64 nr_cached;
	u64 seq;
	u32 epoch;
	struct rnd_state rnd;
};

/**
 * struct wbd_stage - data of one write that is not visible yet
 * @first: its pages that are not all zeroes or not whole, by page number
 * @last: end of that list
 * @reserved: its share of the store's
 * @epoch: of the store when it was staged
 */
struct wbd_stage {
	struct wbd_version *first;
	struct wbd_version *last;
	u32 reserved;
	u32 epoch;
};

/* wbdisk_page.c */
int wbd_store_module_init(void);
void wbd_store_module_exit(void);
struct wbd_version *wbd_version_new(u64 page);
void wbd_version_free(struct wbd_version *v);
bool wbd_page_is_zero(const void *data);

/* wbdisk_stage.c */
void wbd_stage_begin(struct wbd_store *store, struct wbd_stage *stage);
blk_status_t wbd_stage_add(struct wbd_store *store, struct wbd_stage *stage,
			   u64 pos, const void *data, u32 bytes);
blk_status_t wbd_stage_edges(struct wbd_store *store, struct wbd_stage *stage,
			     u64 pos, u64 bytes);
void wbd_stage_drop(struct wbd_store *store, struct wbd_stage *stage);

/* wbdisk_store.c */
int wbd_store_init(struct wbd_store *store, u64 bytes);
void wbd_store_destroy(struct wbd_store *store);
bool wbd_store_install(struct wbd_store *store, struct wbd_stage *stage,
		       u64 pos, u64 bytes, bool durable, u64 log_end);
void wbd_store_read(struct wbd_store *store, u64 pos, void *data, u32 bytes);
u64 wbd_store_seq(struct wbd_store *store);
bool wbd_store_flush(struct wbd_store *store, u64 seq, u32 epoch);
void wbd_store_retire(struct wbd_store *store, u64 log_end);
void wbd_store_cut(struct wbd_store *store, u32 keep_ppm, u64 retired);

/* Where the newest version of a page is; NULL if its leaf does not exist. */
static inline struct wbd_version **wbd_store_top(const struct wbd_store *store, u64 page)
{
	struct wbd_version **leaf = store->leaf[page / WBD_LEAF_PAGES];

	return leaf ? &leaf[page % WBD_LEAF_PAGES] : NULL;
}

#endif /* _WBDISK_STORE_H */
