// SPDX-License-Identifier: GPL-2.0
/* The block device of a disk that is on. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "wbdisk.h"
#include "wbdisk_compat.h"

/* Pages are freed with interrupts off: about 2 ms for this much. */
#define DISCARD_MAX	SZ_64M

static const struct block_device_operations wbd_fops = {
	.owner = THIS_MODULE,
};

static void make_limits(const struct wbd_config *cfg, struct queue_limits *lim)
{
	memset(lim, 0, sizeof(*lim));
	/* 512e, as nearly all disks are */
	lim->logical_block_size = SECTOR_SIZE;
	lim->physical_block_size = SZ_4K;
	lim->max_hw_sectors = max(cfg->max_io_kib << 1, (u32)PAGE_SECTORS);
	lim->max_segments = cfg->max_segments;
	/* One entry of an AHCI or NVMe scatter list; the block layer's default. */
	lim->max_segment_size = BLK_MAX_SEGMENT_SIZE;
	if (cfg->discard) {
		lim->max_hw_discard_sectors = DISCARD_MAX >> SECTOR_SHIFT;
		lim->max_write_zeroes_sectors = DISCARD_MAX >> SECTOR_SHIFT;
		lim->discard_granularity = PAGE_SIZE;
	}
	if (cfg->write_cache)
		lim->features |= BLK_FEAT_WRITE_CACHE;
	if (cfg->write_cache && cfg->fua)
		lim->features |= BLK_FEAT_FUA;
	if (cfg->rotational)
		lim->features |= BLK_FEAT_ROTATIONAL;
}

static int make_disk(struct wbd_dev *dev)
{
	const struct wbd_config *cfg = &dev->cfg;
	struct blk_mq_tag_set *set = &dev->tag_set;
	struct queue_limits lim;
	struct gendisk *disk;
	int err;

	memset(set, 0, sizeof(*set));
	set->ops = &wbd_mq_ops;
	set->nr_hw_queues = cfg->queues ?: num_online_cpus();
	set->queue_depth = cfg->queue_depth;
	set->cmd_size = sizeof(struct wbd_rq);
	set->numa_node = NUMA_NO_NODE;
	set->flags = WBD_TAG_FLAGS;
	err = blk_mq_alloc_tag_set(set);
	if (err)
		return err;
	make_limits(cfg, &lim);
	disk = blk_mq_alloc_disk(set, &lim, dev);
	if (IS_ERR(disk)) {
		err = PTR_ERR(disk);
		goto free_tags;
	}
	disk->fops = &wbd_fops;
	disk->flags |= GENHD_FL_NO_PART;
	snprintf(disk->disk_name, sizeof(disk->disk_name), WBD_PREFIX "%s",
		 wbd_name(dev));
	set_capacity(disk, (u64)cfg->capacity_mib << (20 - SECTOR_SHIFT));
	dev->disk = disk;
	err = add_disk(disk);
	if (!err)
		return 0;
	dev->disk = NULL;
	put_disk(disk);
free_tags:
	blk_mq_free_tag_set(set);
	return err;
}

/**
 * wbd_power_on() - make the disk appear
 * @dev: off; config_lock held
 *
 * Return: 0, -EINVAL if the numbers do not fit together, -ENOMEM, or what the
 * block layer says.
 */
int wbd_power_on(struct wbd_dev *dev)
{
	const char *problem = wbd_config_problem(&dev->cfg);
	int err;

	if (problem) {
		pr_warn_ratelimited("%s: %s\n", wbd_name(dev), problem);
		return -EINVAL;
	}
	if (!dev->store.leaf) {
		err = wbd_store_init(&dev->store, (u64)dev->cfg.capacity_mib << 20);
		if (err)
			return err;
	}
	dev->store.cap = (u64)dev->cfg.store_mib << (20 - PAGE_SHIFT);
	prandom_seed_state(&dev->store.rnd, dev->cfg.seed);
	err = wbd_sim_init(&dev->sim, &dev->cfg);
	if (err)
		goto no_sim;
	dev->dead = false;
	dev->leaving = false;
	dev->said_full = false;
	dev->stall_until = 0;
	dev->armed = WBD_NEVER;
	err = make_disk(dev);
	if (!err)
		return 0;
	wbd_sim_destroy(&dev->sim);
no_sim:
	dev->sim.ops = NULL;
	return err;
}

/**
 * wbd_power_off() - make the disk disappear, its data is kept
 * @dev: on; config_lock held
 *
 * In good order: file systems are synced, commands inside complete, the cache is
 * written back.  Open handles get I/O errors from then on.
 */
void wbd_power_off(struct wbd_dev *dev)
{
	wbd_leave(dev);
	del_gendisk(dev->disk);
	hrtimer_cancel(&dev->timer);
	if (!dev->dead)
		wbd_store_flush(&dev->store, wbd_store_seq(&dev->store),
				dev->store.epoch);
	put_disk(dev->disk);
	blk_mq_free_tag_set(&dev->tag_set);
	dev->disk = NULL;
	/* Not under the lock, it may sleep; who settles holds config_lock. */
	wbd_sim_destroy(&dev->sim);
	dev->sim.ops = NULL;
}
