// SPDX-License-Identifier: GPL-2.0
/* The kernel's own law, block/blk-wbt-law.c, as one of the bench's. */
#include <stdio.h>

#include "wblaw.h"
#include "blk-wbt-law.h"

struct state {
	struct wbt_law law;
	struct wbt_reads reads;
};

static void law_setup(struct wblaw *s)
{
	struct state *state = calloc(1, sizeof(*state));

	s->priv = state;
	wbt_law_init(&state->law, s->tags);
}

static void law_sent(struct wblaw *s, u32 bytes, u64 *stamp)
{
	struct wbt_law *law = s->priv;

	*stamp = (u32)law->delivered | (u64)wbt_law_since(law, s->now) << 32;
}

static void law_done(struct wblaw *s, u32 bytes, u64 issued, u64 stamp)
{
	wbt_law_done(s->priv, s->now, s->now - issued, stamp >> 32, bytes, stamp,
		     s->inflight_bytes);
}

static void law_read(struct wblaw *s, u64 latency)
{
	struct state *state = s->priv;
	struct wbt_reads *reads = &state->reads;

	/* Nor does the kernel look at them without writes. */
	if (!s->inflight && !s->held)
		return;
	reads->least = reads->nr ? min(reads->least, latency) : latency;
	reads->took += latency;
	reads->most = max(reads->most, latency);
	reads->nr++;
	if (latency > state->law.queue)
		reads->nr_late++;
}

/* As in blk-wbt.c. */
static bool law_active(const struct wblaw *s)
{
	const struct wbt_law *law = s->priv;

	return law->pace ? wblaw_active(s) : wblaw_read_within(s, 5 * NSEC_PER_SEC);
}

static u64 law_window(struct wblaw *s)
{
	struct state *state = s->priv;
	struct wbt_law *law = s->priv;

	if (!state->reads.nr && s->read_since)
		state->reads.waits = s->now - s->read_since;
	wbt_law_window(law, s->now, wblaw_active(s) && s->held, &state->reads);
	memset(&state->reads, 0, sizeof(state->reads));
	if (getenv("WBLAW_TRACE")) {
		fprintf(stderr, "%.3f active=%d held=%d inflight=%u,%lu limit=%lu max_io=%u ",
			s->now / 1e9, law_active(s), s->held, s->inflight,
			s->inflight_bytes, law->limit, law->max_io);
		fprintf(stderr, "rate=%lu least=%lu gain=%u best=%lu draining=%d starting=%d ",
			wbt_law_rate(law), wbt_law_least(law), law->gain,
			law->best, law->draining, law->starting);
		fprintf(stderr, "pace=%lu drain=%lu hidden=%lu late=%lu allow=%lu\n",
			law->pace, law->drain, law->hidden,
			law->late_at ? s->now - law->late_at : 0, law->allow);
	}
	return WBT_WINDOW_NSEC;
}

static u64 law_wait(struct wblaw *s, u32 bytes)
{
	if (!law_active(s))
		return 0;
	return wbt_law_wait(s->priv, s->now, s->inflight, s->inflight_bytes,
			    bytes);
}

static u64 law_max_io(struct wblaw *s)
{
	if (!law_active(s))
		return U64_MAX;
	return ((struct wbt_law *)s->priv)->max_io;
}

const struct wblaw_ops wblaw_law = {
	.name = "law",
	.setup = law_setup,
	.sent = law_sent,
	.done = law_done,
	.read = law_read,
	.window = law_window,
	.max_io = law_max_io,
	.wait = law_wait,
};
