// SPDX-License-Identifier: GPL-2.0
/* Mechanics of a hard disk; all positions are bytes from the start. */
#include <linux/kernel.h>
#include <linux/math.h>
#include <linux/math64.h>
#include <linux/time64.h>

#include "wbdisk_platter.h"

/**
 * wbd_platter_init() - lay out the tracks
 * @p: result
 * @cfg: capacity_mib, rpm, seek_*, media_mbps_*
 */
void wbd_platter_init(struct wbd_platter *p, const struct wbd_config *cfg)
{
	s32 span = (s32)cfg->media_mbps_outer - (s32)cfg->media_mbps_inner;
	u64 track = 0;
	int i;

	p->rev_ns = div_u64(60ULL * NSEC_PER_SEC, cfg->rpm);
	p->zone_bytes = div_u64((u64)cfg->capacity_mib << 20, WBD_ZONES);
	for (i = 0; i < WBD_ZONES; i++) {
		struct wbd_zone *zone = &p->zone[i];

		zone->mbps = (s32)cfg->media_mbps_outer -
			     span * i / (WBD_ZONES - 1);
		zone->track_bytes = div_u64((u64)p->rev_ns * zone->mbps, 1000);
		zone->start = p->zone_bytes * i;
		zone->track = track;
		track += div_u64(p->zone_bytes, zone->track_bytes) + 1;
	}
	p->tracks = track;
	p->seek_min_ns = cfg->seek_min_ns;
	/*
	 * The mean of sqrt(|x - y|) over uniform x, y in [0, 1] is 8/15, so the
	 * full stroke is 15/8 of the mean above the shortest seek.
	 */
	p->seek_span_ns = (u64)(cfg->seek_avg_ns - cfg->seek_min_ns) * 15 / 8;
}

static const struct wbd_zone *zone_of(const struct wbd_platter *p, u64 pos)
{
	u64 i = div64_u64(pos, p->zone_bytes);

	return &p->zone[min_t(u64, i, WBD_ZONES - 1)];
}

static u64 track_of(const struct wbd_platter *p, u64 pos)
{
	const struct wbd_zone *zone = zone_of(p, pos);

	return zone->track + div_u64(pos - zone->start, zone->track_bytes);
}

/**
 * wbd_platter_mbps() - rate at which the data there passes
 * @p: geometry
 * @pos: where
 *
 * Return: MB/s.
 */
u32 wbd_platter_mbps(const struct wbd_platter *p, u64 pos)
{
	return zone_of(p, pos)->mbps;
}

/**
 * wbd_platter_seek_ns() - time from track to track
 * @p: geometry
 * @from: position on the one
 * @to: position on the other
 *
 * Return: ns, 0 on the same track.
 */
u64 wbd_platter_seek_ns(const struct wbd_platter *p, u64 from, u64 to)
{
	u64 a = track_of(p, from), b = track_of(p, to);
	u64 distance = a > b ? a - b : b - a;
	u64 root;

	if (!distance)
		return 0;
	/* sqrt(distance / tracks) in 2^-16 */
	root = int_sqrt64(div64_u64(distance << 32, p->tracks));
	return p->seek_min_ns + ((p->seek_span_ns * root) >> 16);
}

/**
 * wbd_platter_rotate() - when a position is under the head
 * @p: geometry
 * @pos: where
 * @t: time from which on the head is on its track
 *
 * Return: time.
 */
u64 wbd_platter_rotate(const struct wbd_platter *p, u64 pos, u64 t)
{
	const struct wbd_zone *zone = zone_of(p, pos);
	u32 off, phase, angle, wait;

	div_u64_rem(pos - zone->start, zone->track_bytes, &off);
	angle = div_u64((u64)off * p->rev_ns, zone->track_bytes);
	div_u64_rem(t, p->rev_ns, &phase);
	wait = angle >= phase ? angle - phase : angle + p->rev_ns - phase;
	if (wait + WBD_CATCH_NS >= p->rev_ns)
		wait = 0;
	return t + wait;
}
