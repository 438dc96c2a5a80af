// SPDX-License-Identifier: GPL-2.0
/* What one page contained: versions, which staging and the store hand around. */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "wbdisk_store.h"

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

/**
 * wbd_version_new() - zeroes for a page
 * @page: page number
 *
 * Return: version, or NULL if memory is short.
 */
struct wbd_version *wbd_version_new(u64 page)
{
	struct wbd_version *v = kmem_cache_alloc(version_cache, WBD_ATOMIC);

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

/**
 * wbd_version_free() - free a version and its data
 * @v: in no chain and no list
 */
void wbd_version_free(struct wbd_version *v)
{
	free_page((unsigned long)v->data);
	kmem_cache_free(version_cache, v);
}

/* Eight words at a time: memchr_inv() costs the test machine three times this. */
bool wbd_page_is_zero(const void *data)
{
	const unsigned long *p = data, *end = data + PAGE_SIZE;

	for (; p < end; p += 8)
		if (p[0] | p[1] | p[2] | p[3] | p[4] | p[5] | p[6] | p[7])
			return false;
	return true;
}
