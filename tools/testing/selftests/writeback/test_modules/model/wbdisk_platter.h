/* SPDX-License-Identifier: GPL-2.0 */
/* Mechanics of a hard disk: where a byte is, how long to get there. */
#ifndef _WBDISK_PLATTER_H
#define _WBDISK_PLATTER_H

#include "wbdisk_config.h"

/* Steps from the outer to the inner rate. */
#define WBD_ZONES	16
/* Rounding of times: the head catches a sector that it misses by this. */
#define WBD_CATCH_NS	2000

struct wbd_zone {
	u64 start;		/* first byte */
	u64 track;		/* number of its first track */
	u32 track_bytes;
	u32 mbps;
};

/**
 * struct wbd_platter - geometry
 * @zone: from the outermost on
 * @zone_bytes: size of each
 * @tracks: number of tracks
 * @rev_ns: one rotation
 * @seek_min_ns: shortest seek
 * @seek_span_ns: from the shortest to the longest
 */
struct wbd_platter {
	struct wbd_zone zone[WBD_ZONES];
	u64 zone_bytes;
	u64 tracks;
	u32 rev_ns;
	u32 seek_min_ns;
	u64 seek_span_ns;
};

void wbd_platter_init(struct wbd_platter *p, const struct wbd_config *cfg);
u32 wbd_platter_mbps(const struct wbd_platter *p, u64 pos);
u64 wbd_platter_seek_ns(const struct wbd_platter *p, u64 from, u64 to);
u64 wbd_platter_rotate(const struct wbd_platter *p, u64 pos, u64 t);

#endif /* _WBDISK_PLATTER_H */
