/* SPDX-License-Identifier: GPL-2.0 */
/* wbdisk: a block device whose timing is a model. */
#ifndef _WBDISK_H
#define _WBDISK_H

#include <linux/blk-mq.h>
#include <linux/configfs.h>
#include <linux/hrtimer.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>

#include "wbdisk_model.h"
#include "wbdisk_store.h"

/* /dev/wbd-NAME must fit into DISK_NAME_LEN. */
#define WBD_NAME_MAX	24
#define WBD_PREFIX	"wbd-"

#define WBD_HIST_SLOTS	40

enum wbd_hist_kind {
	WBD_HIST_READ,		/* us from issue to completion */
	WBD_HIST_WRITE,
	WBD_HIST_FLUSH,
	WBD_HIST_AHEAD,		/* KiB of writes in the device at a read's issue */
	WBD_NR_HISTS,
};

struct wbd_hist {
	u64 slot[WBD_HIST_SLOTS];	/* [i] counts values of i + 1 bits */
};

struct wbd_stats {
	u64 done[WBD_NR_OPS];
	u64 read_bytes;
	u64 write_bytes;
	u64 inflight_bytes;
	u64 inflight_peak_bytes;
	u64 inflight_write_bytes;
	u64 inflight_write_peak_bytes;
	u64 errors_injected;
	struct wbd_hist hist[WBD_NR_HISTS];
};

enum wbd_fault_kind {
	WBD_FAULT_NONE,
	WBD_FAULT_EIO,
	WBD_FAULT_TIMEOUT,
};

#define WBD_OP_ANY	WBD_NR_OPS

/**
 * struct wbd_fault - commands to fail
 * @kind: how
 * @op: which, or WBD_OP_ANY
 * @start: range: first sector
 * @len: range: sectors
 * @nth: nth: matching commands until the one that fails
 */
struct wbd_fault {
	enum wbd_fault_kind kind;
	unsigned int op;
	u64 start;
	u64 len;
	u64 nth;
};

enum wbd_rq_state {
	WBD_RQ_ACTIVE,		/* in the model */
	WBD_RQ_HUNG,		/* never completes by itself */
	WBD_RQ_DONE,		/* handed to blk-mq */
};

/**
 * struct wbd_rq - the driver's part of a request
 * @cmd: its part in the model
 * @active: entry of the device's list of commands inside
 * @state: protected by the device's lock
 * @status: what it completes with
 * @stage: data of a write
 * @flush_seq: flush: writes that were visible when it arrived
 * @epoch: flush: power cuts until then
 * @tries: times that memory was short
 */
struct wbd_rq {
	struct wbd_cmd cmd;
	struct list_head active;
	enum wbd_rq_state state;
	blk_status_t status;
	struct wbd_stage stage;
	u64 flush_seq;
	u32 epoch;
	u32 tries;
};

/**
 * struct wbd_dev - one disk
 * @item: its configfs directory; holds the last reference
 * @config_lock: serialises the attributes and power
 * @cfg: the numbers; written under @config_lock and @lock
 * @disk: NULL while power is 0
 * @tag_set: valid while power is 1
 * @store: the data, from the first power on
 * @lock: protects everything below
 * @sim: the model, valid while power is 1
 * @timer: fires when the model has something to complete
 * @armed: when, or WBD_NEVER
 * @active: commands inside
 * @stall_until: no completions before this
 * @dead: the power was cut
 * @leaving: power goes to 0: nothing hangs any more
 * @said_full: the kernel log has it since power on
 * @cuts: number of times that happened
 * @fail_range: commands to fail by place
 * @fail_nth: command to fail by number
 * @stats: counters
 */
struct wbd_dev {
	struct config_item item;
	struct mutex config_lock;	/* cfg, disk */
	struct wbd_config cfg;
	struct gendisk *disk;
	struct blk_mq_tag_set tag_set;
	struct wbd_store store;

	spinlock_t lock;		/* all below */
	struct wbd_sim sim;
	struct hrtimer timer;
	u64 armed;
	struct list_head active;
	u64 stall_until;
	bool dead;
	bool leaving;
	bool said_full;
	u64 cuts;
	struct wbd_fault fail_range;
	struct wbd_fault fail_nth;
	struct wbd_stats stats;
};

static inline const char *wbd_name(const struct wbd_dev *dev)
{
	return config_item_name((struct config_item *)&dev->item);
}

/* wbdisk_disk.c */
int wbd_power_on(struct wbd_dev *dev);
void wbd_power_off(struct wbd_dev *dev);

/* wbdisk_queue.c */
extern const struct blk_mq_ops wbd_mq_ops;
enum hrtimer_restart wbd_timer(struct hrtimer *timer);
void wbd_settle(struct wbd_dev *dev);
void wbd_leave(struct wbd_dev *dev);
void wbd_stall(struct wbd_dev *dev, u64 ns);
void wbd_cut(struct wbd_dev *dev);

/* wbdisk_configfs.c */
int wbd_configfs_register(void);
void wbd_configfs_unregister(void);

/* wbdisk_faults.c */
enum wbd_fault_kind wbd_fault_match(struct wbd_dev *dev,
				    const struct wbd_cmd *cmd, u32 bytes);
int wbd_fault_parse_range(struct wbd_fault *fault, const char *text);
int wbd_fault_parse_nth(struct wbd_fault *fault, const char *text);
ssize_t wbd_fault_show(const struct wbd_fault *fault, char *page, bool range);

/* wbdisk_stats.c */
void wbd_stats_queue(struct wbd_dev *dev, const struct wbd_cmd *cmd);
void wbd_stats_done(struct wbd_dev *dev, const struct wbd_cmd *cmd, u64 now);
void wbd_stats_reset(struct wbd_dev *dev);
ssize_t wbd_stats_show(struct wbd_dev *dev, char *page);
ssize_t wbd_hist_show(struct wbd_dev *dev, enum wbd_hist_kind kind, char *page);

#endif /* _WBDISK_H */
