/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The timing model of a disk: a discrete event simulation on a clock that the
 * caller supplies.  It takes no locks, starts no timers and looks at no clock
 * of its own, so that KUnit can run it; the driver calls it under one lock.
 *
 * All times are ns on one monotonic clock, all sizes bytes unless the name says
 * otherwise, all rates MB/s (10^6 bytes per second).
 */
#ifndef _WBDISK_MODEL_H
#define _WBDISK_MODEL_H

#include <linux/list.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/prandom.h>
#include <linux/rbtree.h>
#include <linux/types.h>

#include "wbdisk_config.h"

#define WBD_NEVER	U64_MAX

enum wbd_op {
	WBD_READ,
	WBD_WRITE,
	WBD_FLUSH,
	WBD_DISCARD,
	WBD_ZEROES,
	WBD_NR_OPS,
};

enum wbd_event_type {
	WBD_EV_DONE,		/* a command completes */
	WBD_EV_DATA,		/* a command's data is ready for the link */
	WBD_EV_LINK,		/* a transfer on the link ends */
	WBD_EV_SPACE,		/* room in the write buffer */
	WBD_EV_HEAD,		/* the disk's arm is free */
};

struct wbd_event {
	struct rb_node node;
	u64 when;
	u64 order;		/* of two events at one time the older goes first */
	enum wbd_event_type type;
	bool armed;
};

/**
 * struct wbd_cmd - one command inside the device
 * @event: its next event; a command is never in two places at once
 * @node: entry of the queue it waits in
 * @op: what it does
 * @fua: a write that must be on the medium before it completes
 * @sector: first sector (512 bytes)
 * @bytes: length; 0 for a flush
 * @seq: number of arrival
 * @arrived: time of arrival
 * @data_end: read: time at which its last data is ready for the link
 * @log_end: write: position in the write log behind its last byte, see
 *	wbd_sim_retired()
 * @durable: write: on the medium when it completes
 */
struct wbd_cmd {
	struct wbd_event event;
	struct list_head node;
	enum wbd_op op;
	bool fua;
	u64 sector;
	u32 bytes;
	u64 seq;
	u64 arrived;
	u64 data_end;
	u64 log_end;
	bool durable;
};

/* One direction of the host link: serves transfers one at a time. */
struct wbd_link {
	struct wbd_event event;
	struct list_head queue;	/* ready transfers in order of their arrival */
	struct wbd_cmd *busy;
};

struct wbd_sim;

/**
 * struct wbd_model_ops - what differs between the models
 * @init: allocate and set up the model's own state; may sleep
 * @destroy: free it
 * @reset: forget every command, as after a loss of power
 * @arrive: a command enters the device
 * @linked: the transfer of a command over the link ended
 * @event: an event of the model's own is due; @cmd is NULL if it is not a
 *	command's
 * @retired: see wbd_sim_retired()
 */
struct wbd_model_ops {
	int (*init)(struct wbd_sim *sim);
	void (*destroy)(struct wbd_sim *sim);
	void (*reset)(struct wbd_sim *sim);
	void (*arrive)(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t);
	void (*linked)(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t);
	void (*event)(struct wbd_sim *sim, struct wbd_event *event, u64 t);
	u64 (*retired)(struct wbd_sim *sim, u64 t);
};

/**
 * struct wbd_sim - one simulated disk
 * @cfg: its numbers; of those only the ones marked live in wbdisk_config.h may
 *	change while commands are in flight
 * @ops: its model
 * @priv: the model's state
 * @internal: events that complete nothing by themselves
 * @completions: completions by time
 * @done: completed commands, for wbd_sim_pop()
 * @held: commands that wait for a flush that is served alone
 * @link: host link; [0] carries everything unless link_duplex is set, then [0]
 *	carries data of writes and [1] that of reads
 * @now: time up to which everything has happened
 * @order: number of events so far
 * @arrivals: number of commands so far
 * @inflight: commands started and not completed
 * @exclusive: a flush is being served alone
 * @credit: bytes that may go at burst_mbps
 * @credit_at: time of the last change of @credit
 * @rnd: source of the jitter
 */
struct wbd_sim {
	const struct wbd_config *cfg;
	const struct wbd_model_ops *ops;
	void *priv;
	struct rb_root_cached internal;
	struct rb_root_cached completions;
	struct list_head done;
	struct list_head held;
	struct wbd_link link[2];
	u64 now;
	u64 order;
	u64 arrivals;
	u32 inflight;
	bool exclusive;
	u64 credit;
	u64 credit_at;
	struct rnd_state rnd;
};

int wbd_sim_init(struct wbd_sim *sim, const struct wbd_config *cfg);
void wbd_sim_destroy(struct wbd_sim *sim);
void wbd_sim_reset(struct wbd_sim *sim);
void wbd_sim_queue(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 now);
void wbd_sim_advance(struct wbd_sim *sim, u64 now);
u64 wbd_sim_next(const struct wbd_sim *sim);
struct wbd_cmd *wbd_sim_pop(struct wbd_sim *sim);
u64 wbd_sim_retired(struct wbd_sim *sim);

/* For the models. */
void wbd_sim_schedule(struct wbd_sim *sim, struct wbd_event *event,
		      enum wbd_event_type type, u64 when);
void wbd_sim_transfer(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t);
void wbd_sim_finish(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t);
u64 wbd_sim_jitter(struct wbd_sim *sim, u64 ns);

extern const struct wbd_model_ops wbd_ssd_ops;
extern const struct wbd_model_ops wbd_hdd_ops;

/**
 * wbd_xfer_ns() - time that moving data takes
 * @bytes: at most 16 GB
 * @mbps: rate in MB/s, not 0
 *
 * Return: ns, rounded down.
 */
static inline u64 wbd_xfer_ns(u64 bytes, u32 mbps)
{
	return div_u64(bytes * 1000, mbps);
}

/* Writes are acknowledged from the buffer unless they ask for the medium. */
static inline bool wbd_acks_early(const struct wbd_sim *sim,
				  const struct wbd_cmd *cmd)
{
	return sim->cfg->write_cache && !cmd->fua;
}

#endif /* _WBDISK_MODEL_H */
