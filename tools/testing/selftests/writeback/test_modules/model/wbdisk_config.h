/* SPDX-License-Identifier: GPL-2.0 */
/* The numbers of a modelled disk. */
#ifndef _WBDISK_CONFIG_H
#define _WBDISK_CONFIG_H

#include <linux/types.h>

enum wbd_model {
	WBD_MODEL_FIFO,
	WBD_MODEL_SSD,
	WBD_MODEL_HDD,
	WBD_NR_MODELS,
};

/**
 * struct wbd_config - all numbers of one disk
 * @profile: where they came from, an index of wbd_profiles
 * @model: which model they feed
 * @capacity_mib: size of the disk
 * @store_mib: cap on the data kept; all-zero pages are not kept
 * @link_mbps: host link; a change holds for transfers not yet started
 * @link_duplex: 1: data of reads and writes do not share the link
 * @latency_ns: fixed latency of each command, behind its last transfer
 * @latency_jitter_ns: further latency of each command, from 0 to this
 * @command_ns: time that the link spends on a command beside its data
 * @burst_mib: with @burst_mbps: a volume that earns credit at link_mbps, up to
 *	this, and moves data at burst_mbps while it has some
 * @burst_mbps: 0: none of that
 * @channels: flash channels
 * @dies_per_channel: flash dies on each
 * @channel_mbps: rate of one channel
 * @page_kib: data that one read of a die delivers
 * @prog_kib: data that one program of a die takes (all its planes)
 * @t_read_ns: a die is busy with a read
 * @t_prog_ns: a die is busy with a program
 * @slc_mib: data from power on until the fast part of the flash is full
 * @t_prog_full_ns: t_prog_ns from then on; 0: it never is
 * @write_buffer_kib: RAM for writes that are not on the medium
 * @rpm: rotations per minute
 * @seek_min_ns: to the next track
 * @seek_avg_ns: mean over uniformly random pairs of tracks
 * @media_mbps_outer: at the first sector
 * @media_mbps_inner: at the last sector
 * @readahead_kib: how far the disk reads on when it is idle
 * @age_limit_ms: a command older than this goes before shorter seeks
 * @write_cache: 1: acknowledges writes from RAM, and says so
 * @fua: 1: advertises FUA (only with write_cache)
 * @flush_drains: 1: a flush is served alone (non-queued ATA command)
 * @queues: hardware queues; 0: one per CPU
 * @queue_depth: commands per queue
 * @max_segments: pieces of memory in one command
 * @max_io_kib: size of one command
 * @rotational: what /sys/block/X/queue/rotational says
 * @discard: 1: supports discard
 * @jitter_ppm: spread of each transfer, seek and flash operation
 * @seed: of the pseudo-random choices
 * @lazy_cache: 1: writes leave the cache only by flush, FUA or for room
 * @cut_keep_ppm: share of the cached pages that a power cut leaves
 *
 * Each from @capacity_mib on is a line of wbdisk_numbers.h, and a configfs file of
 * the same name.
 */
struct wbd_config {
	u32 profile;
	u32 model;
#define WBD_NUMBER(name, ...)	u32 name
#include "wbdisk_numbers.h"
};

/**
 * struct wbd_profile - one entry of wbdisk_profiles.h
 * @word: what the tests call it
 * @name: what it is called in full; the file "profile" takes both
 * @config: its numbers
 */
struct wbd_profile {
	const char *word;
	const char *name;
	struct wbd_config config;
};

extern const struct wbd_profile wbd_profiles[];
extern const unsigned int wbd_nr_profiles;
extern const char *const wbd_model_names[WBD_NR_MODELS];

int wbd_config_load(struct wbd_config *cfg, const char *profile);
const char *wbd_config_problem(const struct wbd_config *cfg);

#endif /* _WBDISK_CONFIG_H */
