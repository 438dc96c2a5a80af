/* SPDX-License-Identifier: GPL-2.0 */
/* The numbers of a modelled disk: their names, ranges and defaults. */
#ifndef _WBDISK_CONFIG_H
#define _WBDISK_CONFIG_H

#include <linux/types.h>

enum wbd_model {
	WBD_MODEL_FIFO,
	WBD_MODEL_SSD,
	WBD_MODEL_HDD,
	WBD_NR_MODELS,
};

/*
 * WBD_NUMBERS(X) - every decimal attribute: X(name, lowest, highest, live)
 *
 * The name is that of the configfs file and of the member of struct wbd_config.
 * A live one can be written while the disk is on, the others then give EBUSY.
 *
 * capacity_mib		size of the disk
 * store_mib		cap on the data kept; all-zero pages are not kept
 * link_mbps		host link; a change holds for transfers not yet started
 * link_duplex		1: data of reads and writes do not share the link
 * latency_ns		fixed latency of each command, behind its last transfer
 * channels		flash channels
 * dies_per_channel	flash dies on each
 * channel_mbps		rate of one channel
 * page_kib		data that one read of a die delivers
 * prog_kib		data that one program of a die takes (all its planes)
 * t_read_ns		a die is busy with a read
 * t_prog_ns		a die is busy with a program
 * write_buffer_kib	RAM for writes that are not on the medium
 * rpm			rotations per minute
 * seek_min_ns		to the next track
 * seek_avg_ns		mean over uniformly random pairs of tracks
 * media_mbps_outer	at the first sector
 * media_mbps_inner	at the last sector
 * readahead_kib	how far the disk reads on when it is idle
 * age_limit_ms		a command older than this goes before shorter seeks
 * write_cache		1: acknowledges writes from RAM, and says so
 * fua			1: advertises FUA (only with write_cache)
 * flush_drains		1: a flush is served alone (non-queued ATA command)
 * queues		hardware queues; 0: one per CPU
 * queue_depth		commands per queue
 * max_segments		pieces of memory in one command
 * max_io_kib		size of one command
 * rotational		what /sys/block/X/queue/rotational says
 * discard		1: supports discard
 * jitter_ppm		spread of each transfer, seek and flash operation
 * seed			of the pseudo-random choices
 * lazy_cache		1: writes leave the cache only by flush, FUA or for room
 * cut_keep_ppm		share of the cached pages that a power cut leaves
 */
#define WBD_NUMBERS(X)						\
	X(capacity_mib, 1, 4194304, false)			\
	X(store_mib, 1, 4194304, true)				\
	X(link_mbps, 1, 100000, true)				\
	X(link_duplex, 0, 1, false)				\
	X(latency_ns, 0, 1000000000, false)			\
	X(channels, 1, 64, false)				\
	X(dies_per_channel, 1, 64, false)			\
	X(channel_mbps, 1, 100000, false)			\
	X(page_kib, 1, 1024, false)				\
	X(prog_kib, 4, 4096, false)				\
	X(t_read_ns, 0, 1000000000, false)			\
	X(t_prog_ns, 0, 1000000000, false)			\
	X(write_buffer_kib, 64, 1048576, false)			\
	X(rpm, 1000, 100000, false)				\
	X(seek_min_ns, 0, 100000000, false)			\
	X(seek_avg_ns, 0, 100000000, false)			\
	X(media_mbps_outer, 1, 10000, false)			\
	X(media_mbps_inner, 1, 10000, false)			\
	X(readahead_kib, 0, 65536, false)			\
	X(age_limit_ms, 1, 100000, false)			\
	X(write_cache, 0, 1, false)				\
	X(fua, 0, 1, false)					\
	X(flush_drains, 0, 1, false)				\
	X(queues, 0, 1024, false)				\
	X(queue_depth, 1, 1024, false)				\
	X(max_segments, 1, 65535, false)			\
	X(max_io_kib, 4, 65536, false)				\
	X(rotational, 0, 1, false)				\
	X(discard, 0, 1, false)					\
	X(jitter_ppm, 0, 1000000, false)			\
	X(seed, 0, 4294967295, false)				\
	X(lazy_cache, 0, 1, true)				\
	X(cut_keep_ppm, 0, 1000000, true)

/**
 * struct wbd_config - all numbers of one disk
 * @profile: where they came from, an index of wbd_profiles
 * @model: which model they feed
 *
 * For the others see WBD_NUMBERS.
 */
struct wbd_config {
	u32 profile;
	u32 model;
#define WBD_MEMBER(name, lo, hi, live) u32 name;
	WBD_NUMBERS(WBD_MEMBER)
#undef WBD_MEMBER
};

struct wbd_profile {
	const char *name;
	struct wbd_config config;
};

extern const struct wbd_profile wbd_profiles[];
extern const unsigned int wbd_nr_profiles;
extern const char *const wbd_model_names[WBD_NR_MODELS];

int wbd_config_load(struct wbd_config *cfg, const char *profile);
const char *wbd_config_problem(const struct wbd_config *cfg);

#endif /* _WBDISK_CONFIG_H */
