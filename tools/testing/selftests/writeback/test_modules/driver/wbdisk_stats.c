// SPDX-License-Identifier: GPL-2.0
/* Counters and histograms of a disk. */
#include <linux/log2.h>
#include <linux/sysfs.h>
#include <linux/time64.h>

#include "wbdisk.h"

#define STARS_MAX	40	/* as in bcc */

static void hist_add(struct wbd_hist *hist, u64 value)
{
	unsigned int slot = value ? ilog2(value) : 0;

	hist->slot[min(slot, WBD_HIST_SLOTS - 1U)]++;
}

/**
 * wbd_stats_queue() - a command enters the device
 * @dev: locked
 * @cmd: the command
 */
void wbd_stats_queue(struct wbd_dev *dev, const struct wbd_cmd *cmd)
{
	struct wbd_stats *stats = &dev->stats;

	if (cmd->op == WBD_READ)
		hist_add(&stats->hist[WBD_HIST_AHEAD],
			 stats->inflight_write_bytes >> 10);
	if (cmd->op != WBD_READ && cmd->op != WBD_WRITE)
		return;
	stats->inflight_bytes += cmd->bytes;
	stats->inflight_peak_bytes = max(stats->inflight_peak_bytes,
					 stats->inflight_bytes);
	if (cmd->op != WBD_WRITE)
		return;
	stats->inflight_write_bytes += cmd->bytes;
	stats->inflight_write_peak_bytes = max(stats->inflight_write_peak_bytes,
					       stats->inflight_write_bytes);
}

/**
 * wbd_stats_done() - a command leaves the device
 * @dev: locked
 * @cmd: the command, successful or not
 * @now: time
 */
void wbd_stats_done(struct wbd_dev *dev, const struct wbd_cmd *cmd, u64 now)
{
	struct wbd_stats *stats = &dev->stats;
	u64 us = div_u64(now - cmd->arrived, NSEC_PER_USEC);

	stats->done[cmd->op]++;
	switch (cmd->op) {
	case WBD_READ:
		stats->inflight_bytes -= cmd->bytes;
		stats->read_bytes += cmd->bytes;
		hist_add(&stats->hist[WBD_HIST_READ], us);
		break;
	case WBD_WRITE:
		stats->inflight_bytes -= cmd->bytes;
		stats->inflight_write_bytes -= cmd->bytes;
		stats->write_bytes += cmd->bytes;
		hist_add(&stats->hist[WBD_HIST_WRITE], us);
		break;
	case WBD_FLUSH:
		hist_add(&stats->hist[WBD_HIST_FLUSH], us);
		break;
	default:
		break;
	}
}

/**
 * wbd_stats_reset() - start to count anew; what is in flight stays so
 * @dev: the disk
 */
void wbd_stats_reset(struct wbd_dev *dev)
{
	struct wbd_stats *stats = &dev->stats;
	u64 bytes, write_bytes;
	unsigned long flags;

	spin_lock_irqsave(&dev->lock, flags);
	bytes = stats->inflight_bytes;
	write_bytes = stats->inflight_write_bytes;
	memset(stats, 0, sizeof(*stats));
	stats->inflight_bytes = bytes;
	stats->inflight_peak_bytes = bytes;
	stats->inflight_write_bytes = write_bytes;
	stats->inflight_write_peak_bytes = write_bytes;
	spin_unlock_irqrestore(&dev->lock, flags);
}

/**
 * wbd_stats_show() - one "key value" per line
 * @dev: the disk, settled
 * @page: where to
 *
 * Return: length.
 */
ssize_t wbd_stats_show(struct wbd_dev *dev, char *page)
{
	const struct wbd_stats *stats = &dev->stats;
	u64 kept, cached;
	unsigned long flags;
	ssize_t n = 0;

	spin_lock_irqsave(&dev->store.lock, flags);
	kept = dev->store.kept << PAGE_SHIFT;
	cached = dev->store.nr_cached << PAGE_SHIFT;
	spin_unlock_irqrestore(&dev->store.lock, flags);

	spin_lock_irqsave(&dev->lock, flags);
#define SHOW(name, value) (n += sysfs_emit_at(page, n, name " %llu\n", value))
	SHOW("reads", stats->done[WBD_READ]);
	SHOW("writes", stats->done[WBD_WRITE]);
	SHOW("flushes", stats->done[WBD_FLUSH]);
	SHOW("discards", stats->done[WBD_DISCARD] + stats->done[WBD_ZEROES]);
	SHOW("read_bytes", stats->read_bytes);
	SHOW("write_bytes", stats->write_bytes);
	SHOW("inflight_bytes", stats->inflight_bytes);
	SHOW("inflight_peak_bytes", stats->inflight_peak_bytes);
	SHOW("inflight_write_bytes", stats->inflight_write_bytes);
	SHOW("inflight_write_peak_bytes", stats->inflight_write_peak_bytes);
	SHOW("stored_bytes", kept);
	SHOW("volatile_bytes", cached);
	SHOW("errors_injected", stats->errors_injected);
#undef SHOW
	spin_unlock_irqrestore(&dev->lock, flags);
	return n;
}

/**
 * wbd_hist_show() - one histogram as bcc's tools print it
 * @dev: the disk
 * @kind: which
 * @page: where to
 *
 * Return: length.
 */
ssize_t wbd_hist_show(struct wbd_dev *dev, enum wbd_hist_kind kind, char *page)
{
	static const char stars[] = "****************************************";
	const char *unit = kind == WBD_HIST_AHEAD ? "kbytes" : "usecs";
	struct wbd_hist hist;
	unsigned long flags;
	int i, last = -1;
	u64 top = 0;
	ssize_t n;

	spin_lock_irqsave(&dev->lock, flags);
	hist = dev->stats.hist[kind];
	spin_unlock_irqrestore(&dev->lock, flags);
	for (i = 0; i < WBD_HIST_SLOTS; i++) {
		if (hist.slot[i])
			last = i;
		top = max(top, hist.slot[i]);
	}
	n = sysfs_emit(page, "     %-19s : count    distribution\n", unit);
	for (i = 0; i <= last; i++) {
		u64 low = i ? 1ULL << i : 0;
		int len = div64_u64(hist.slot[i] * STARS_MAX, top);

		n += sysfs_emit_at(page, n, "%10llu -> %-10llu : %-8llu |%-*.*s|\n",
				   low, (2ULL << i) - 1, hist.slot[i],
				   STARS_MAX, len, stars);
	}
	return n;
}
