// SPDX-License-Identifier: GPL-2.0
/*
 * wbdisk - a block device whose timing is a model.
 *
 * null_blk completes every request after one constant time, scsi_debug and
 * dm-delay after one per kind; none has a bandwidth, a cache or a queue whose
 * length matters.  This one has, so that writeback can be tested on a disk that
 * behaves the same everywhere.  See Documentation/wbdisk.md.
 */
#include <linux/module.h>

#include "wbdisk.h"

static int __init wbd_init(void)
{
	int err = wbd_store_module_init();

	if (err)
		return err;
	err = wbd_configfs_register();
	if (err)
		wbd_store_module_exit();
	return err;
}

static void __exit wbd_exit(void)
{
	wbd_configfs_unregister();
	wbd_store_module_exit();
}

module_init(wbd_init);
module_exit(wbd_exit);
MODULE_DESCRIPTION("Block device whose timing is a model");
MODULE_AUTHOR("calm-writeback");
MODULE_LICENSE("GPL");
