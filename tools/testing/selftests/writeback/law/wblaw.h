/* SPDX-License-Identifier: GPL-2.0 */
/* One writer, readers and a law in front of a modelled disk, in virtual time. */
#ifndef WBLAW_H
#define WBLAW_H

#include "shim/shim.h"

struct wblaw;

/**
 * struct wblaw_ops - a law
 * @name: what the bench calls it
 * @setup: start
 * @sent: a write goes to the disk, or to the wait for a tag
 * @done: a write is completed
 * @read: a read is completed
 * @window: so much time has passed; returns the time to the next call, ns
 * @requests: how many writes may be counted in flight
 * @wake: is it time to go on, if so many are in flight after a completion?
 * @bytes: how many bytes of them; ~0 is no limit
 * @max_io: how many in one; ~0 is no limit
 * @wait: how long until a write of so many may go, ns; ~0: until one is completed
 * @write_tags: may a write take another tag?
 */
struct wblaw_ops {
	const char *name;
	void (*setup)(struct wblaw *s);
	void (*sent)(struct wblaw *s, u32 bytes, u64 *stamp);
	void (*done)(struct wblaw *s, u32 bytes, u64 issued, u64 stamp);
	void (*read)(struct wblaw *s, u64 latency);
	u64 (*window)(struct wblaw *s);
	u32 (*requests)(struct wblaw *s);
	bool (*wake)(struct wblaw *s, u32 inflight);
	u64 (*bytes)(struct wblaw *s);
	u64 (*max_io)(struct wblaw *s);
	u64 (*wait)(struct wblaw *s, u32 bytes);
};

/**
 * struct wblaw - what laws may look at
 * @now: time, ns
 * @tags: of the disk, all queues together
 * @rotational: as the disk says
 * @write_cache: as the disk says
 * @inflight: writes let through and not completed
 * @inflight_bytes: the same in bytes
 * @reads: at the disk or waiting for a tag
 * @last_read: when one, or a small sync write, was submitted or completed last
 * @read_since: since when a read is at the disk, ns; 0: none is, or it is not known
 * @tag_wait: how long requests have waited for a tag, all together, ns
 * @held: a write waits for the law
 * @priv: the law's own
 */
struct wblaw {
	u64 now;
	u32 tags;
	bool rotational;
	bool write_cache;
	u32 inflight;
	u64 inflight_bytes;
	u32 reads;
	u64 last_read;
	u64 read_since;
	u64 tag_wait;
	bool held;
	u32 limit_kib;
	u32 io_kib;
	void *priv;
};

/* Is one at the disk, or was within this time? */
static inline bool wblaw_read_within(const struct wblaw *s, u64 nsec)
{
	return s->reads || (s->last_read && s->now < s->last_read + nsec);
}

/* Readers count for 300 ms after a read, unless a law says otherwise. */
static inline bool wblaw_active(const struct wblaw *s)
{
	return wblaw_read_within(s, 300 * NSEC_PER_MSEC);
}

extern const struct wblaw_ops wblaw_none, wblaw_requests, wblaw_share, wblaw_kyber, wblaw_law;
extern const struct wblaw_ops wblaw_vrate, wblaw_fixed;

#endif
