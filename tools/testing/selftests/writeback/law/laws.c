// SPDX-License-Identifier: GPL-2.0
/* Laws to compare with: none, stock wbt's, bytes by rate and target, kyber's, io.cost's. */
#include "wblaw.h"

/* ---- none: only the disk's tags bound what is in flight ---------------------- */

const struct wblaw_ops wblaw_none = {
	.name = "none",
};

/* ---- requests: wbt of 6.12, block/blk-wbt.c and rq_depth_*() ----------------- */

struct requests {
	int step;
	bool max;
	u32 depth, normal, background;
	u64 least;		/* read latency of this window, ns */
	u32 reads, writes;
};

static void requests_limits(struct wblaw *s)
{
	struct requests *p = s->priv;
	u32 depth;

	p->max = false;
	if (s->tags == 1) {
		p->depth = p->step > 0 ? 1 : 2;
		p->max = p->step <= 0;
	} else {
		depth = min(16U, s->tags);
		if (p->step > 0) {
			depth = 1 + ((depth - 1) >> min(31, p->step));
		} else if (p->step < 0) {
			u32 most = 3 * s->tags / 4;

			depth = 1 + ((depth - 1) << min(16, -p->step));
			if (depth > most) {
				depth = most;
				p->max = true;
			}
		}
		p->depth = depth;
	}
	p->normal = p->depth <= 2 ? p->depth : (p->depth + 1) / 2;
	p->background = p->depth <= 2 ? 1 : (p->depth + 3) / 4;
}

static void requests_setup(struct wblaw *s)
{
	struct requests *p = calloc(1, sizeof(*p));

	s->priv = p;
	p->least = U64_MAX;
	requests_limits(s);
}

static void requests_read(struct wblaw *s, u64 latency)
{
	struct requests *p = s->priv;

	p->least = min(p->least, latency);
	p->reads++;
}

static void requests_done(struct wblaw *s, u32 bytes, u64 issued, u64 stamp)
{
	((struct requests *)s->priv)->writes++;
}

static u32 int_root(u32 x)
{
	u32 i = 0;

	while ((i + 1) * (i + 1) <= x)
		i++;
	return i;
}

static u64 requests_window(struct wblaw *s)
{
	struct requests *p = s->priv;
	u64 target = s->rotational ? 75 * NSEC_PER_MSEC : 2 * NSEC_PER_MSEC;

	if (p->reads && p->writes >= 3 && p->least > target) {
		if (p->depth > 1) {
			p->step = p->step < 0 ? 0 : p->step + 1;
			requests_limits(s);
		}
	} else if (p->reads || p->writes || s->inflight) {
		if (!p->max) {
			p->step--;
			requests_limits(s);
		}
	}
	p->least = U64_MAX;
	p->reads = 0;
	p->writes = 0;
	if (p->step > 0)
		return (100 * NSEC_PER_MSEC << 4) / int_root((p->step + 1) << 8);
	return 100 * NSEC_PER_MSEC;
}

/* The flusher, while dd waits in balance_dirty_pages(). */
static u32 requests_requests(struct wblaw *s)
{
	return ((struct requests *)s->priv)->depth;
}

static bool requests_wake(struct wblaw *s, u32 inflight)
{
	struct requests *p = s->priv;

	return inflight < p->normal && p->normal - inflight >= p->background / 2;
}

const struct wblaw_ops wblaw_requests = {
	.name = "requests",
	.setup = requests_setup,
	.done = requests_done,
	.read = requests_read,
	.window = requests_window,
	.requests = requests_requests,
	.wake = requests_wake,
};

/* ---- share: bytes = rate * target * share, the share by the reads' p99 ------- */

#define SHARE_WINDOW	(25 * NSEC_PER_MSEC)
#define SHARE_READS	512

struct share {
	double rate, share;
	u64 bytes;
	u32 reads, late;
	u64 dry;
};

static double share_target(struct wblaw *s)
{
	return s->rotational ? 75e6 : 2e6;
}

static void share_setup(struct wblaw *s)
{
	struct share *p = calloc(1, sizeof(*p));

	s->priv = p;
	p->rate = .5;
	p->share = .5;
}

static void share_read(struct wblaw *s, u64 latency)
{
	struct share *p = s->priv;

	p->reads++;
	p->late += latency > share_target(s);
}

static void share_done(struct wblaw *s, u32 bytes, u64 issued, u64 stamp)
{
	((struct share *)s->priv)->bytes += bytes;
}

static u64 share_max_io(struct wblaw *s)
{
	struct share *p = s->priv;
	double io = p->rate * share_target(s) / 16;

	if (!wblaw_active(s))
		return U64_MAX;
	return clamp_t(u64, round_up((u64)io, SZ_64K), SZ_64K, SZ_1M);
}

static u64 share_bytes(struct wblaw *s)
{
	struct share *p = s->priv;

	if (!wblaw_active(s))
		return U64_MAX;
	return max_t(u64, p->rate * share_target(s) * p->share, 2 * share_max_io(s));
}

static u32 share_requests(struct wblaw *s)
{
	return max(1U, min(s->tags, 64U) / 2);
}

static bool share_wake(struct wblaw *s, u32 inflight)
{
	return inflight < share_requests(s);
}

static u64 share_window(struct wblaw *s)
{
	struct share *p = s->priv;

	p->rate = max(p->bytes / (double)SHARE_WINDOW, p->rate * 15 / 16);
	p->bytes = 0;
	if (p->reads >= 20) {
		if (p->late * 100 > p->reads)
			p->share = max(p->share * .75, .125);
		else if (p->share > .25)
			p->share -= p->share / 64;
		p->reads = 0;
		p->late = 0;
	}
	return SHARE_WINDOW;
}

const struct wblaw_ops wblaw_share = {
	.name = "share",
	.setup = share_setup,
	.done = share_done,
	.read = share_read,
	.window = share_window,
	.requests = share_requests,
	.wake = share_wake,
	.bytes = share_bytes,
	.max_io = share_max_io,
};

/* ---- kyber: tokens of the write domain, by the p99 and p90 of the latencies -- */

#define KYBER_WRITES	128U
#define KYBER_BUCKETS	8

struct kyber {
	u32 depth;
	u32 reads[KYBER_BUCKETS], writes[KYBER_BUCKETS];
	u64 stamp;
};

static void kyber_setup(struct wblaw *s)
{
	struct kyber *p = calloc(1, sizeof(*p));

	s->priv = p;
	p->depth = KYBER_WRITES;
}

/* In quarters of the target, as add_latency_sample(). */
static void kyber_add(u32 *hist, u64 latency, u64 target)
{
	u64 slot = latency ? (latency - 1) / max_t(u64, target / 4, 1) : 0;

	hist[min_t(u64, slot, KYBER_BUCKETS - 1)]++;
}

static void kyber_read(struct wblaw *s, u64 latency)
{
	kyber_add(((struct kyber *)s->priv)->reads, latency, 2 * NSEC_PER_MSEC);
}

static void kyber_done(struct wblaw *s, u32 bytes, u64 issued, u64 stamp)
{
	kyber_add(((struct kyber *)s->priv)->writes, s->now - issued, 10 * NSEC_PER_MSEC);
}

static int kyber_percentile(u32 *hist, u32 pct)
{
	u32 i, sum = 0;
	long rank;

	for (i = 0; i < KYBER_BUCKETS; i++)
		sum += hist[i];
	if (!sum)
		return -1;
	rank = DIV_ROUND_UP(sum * pct, 100);
	for (i = 0; i < KYBER_BUCKETS - 1; i++) {
		if (hist[i] >= rank)
			break;
		rank -= hist[i];
	}
	memset(hist, 0, KYBER_BUCKETS * sizeof(*hist));
	return i;
}

static u64 kyber_window(struct wblaw *s)
{
	struct kyber *p = s->priv;
	int read = kyber_percentile(p->reads, 99), write = kyber_percentile(p->writes, 90);
	bool bad = read >= 4 || write >= 4;

	/* Only if something is bad, a domain's depth follows its own latency. */
	if (bad && write >= 0)
		p->depth = clamp_t(u32, (p->depth * (write + 1)) >> 2, 1U, KYBER_WRITES);
	else if (!bad && write >= 0)
		p->depth = clamp_t(u32, p->depth + p->depth / 2 + 1, 1U, KYBER_WRITES);
	return 100 * NSEC_PER_MSEC;
}

static u32 kyber_requests(struct wblaw *s)
{
	struct kyber *p = s->priv;

	/* What is async leaves a quarter of the tags. */
	return max(1U, min(p->depth, s->tags * 3 / 4));
}

static bool kyber_wake(struct wblaw *s, u32 inflight)
{
	return inflight < kyber_requests(s);
}

const struct wblaw_ops wblaw_kyber = {
	.name = "kyber",
	.setup = kyber_setup,
	.done = kyber_done,
	.read = kyber_read,
	.window = kyber_window,
	.requests = kyber_requests,
	.wake = kyber_wake,
};

/* ---- vrate: io.cost as it is without io.cost.qos, readers and writer of equal weight -- */

/*
 * A model of block/blk-iocost.c: linear costs by its own table, what the readers
 * leave of their half goes to the writer, and a rate of virtual time by how long
 * requests wait for a tag (no latency target is set unless somebody does).
 * Without debts, lagging groups, a change of its table, and whoever merges.
 */
#define VRATE_TICK	NSEC_PER_MSEC
#define VRATE_PAGE	4096

struct vrate_cost {
	double rbps, rrandiops, wbps, wseqiops;
	u64 period;
};

static const struct vrate_cost vrate_hdd = {
	174019176, 370, 178075866, 42705, 1000 * NSEC_PER_MSEC,
};

static const struct vrate_cost vrate_qd1 = {
	245855193, 6946, 141365009, 33716, 50 * NSEC_PER_MSEC,
};

static const struct vrate_cost vrate_ssd = {
	488636629, 8518, 427891549, 28755, 50 * NSEC_PER_MSEC,
};

struct vrate {
	const struct vrate_cost *cost;
	double rate, budget, reads;	/* budget, reads: ns of the device */
	double share;			/* of the writer */
	u64 at, period_end, waited;
	int busy;
	bool was_short;
};

static void vrate_setup(struct wblaw *s)
{
	struct vrate *p = calloc(1, sizeof(*p));

	s->priv = p;
	p->cost = s->rotational ? &vrate_hdd : s->tags == 1 ? &vrate_qd1 : &vrate_ssd;
	p->rate = 1;
	p->share = 1;
	p->at = s->now;
}

/* As calc_lcoefs(): what a command costs beside its first page. */
static double vrate_of(double bytes, double bps, double iops)
{
	double page = VRATE_PAGE / bps, one = 1 / iops;

	return 1e9 * (bytes / bps + (one > page ? one - page : 0));
}

static void vrate_read(struct wblaw *s, u64 latency)
{
	struct vrate *p = s->priv;

	p->reads += vrate_of(VRATE_PAGE, p->cost->rbps, p->cost->rrandiops);
}

static void vrate_sent(struct wblaw *s, u32 bytes, u64 *stamp)
{
	struct vrate *p = s->priv;

	p->budget -= vrate_of(bytes, p->cost->wbps, p->cost->wseqiops);
}

static u64 vrate_bytes(struct wblaw *s)
{
	struct vrate *p = s->priv;
	double most = p->cost->period * p->rate / 2;

	p->budget = min(p->budget + (s->now - p->at) * p->rate * p->share, most);
	p->at = s->now;
	if (p->budget > 0)
		return U64_MAX;
	p->was_short = true;
	return 0;
}

/* ioc_timer_fn() and ioc_adjust_base_vrate() */
static void vrate_period(struct wblaw *s, struct vrate *p)
{
	double waits = 100. * (s->tag_wait - p->waited) / p->cost->period;
	int level, by;

	if (waits > 5)
		p->busy = max(p->busy, 0) + 1;
	else if (waits <= 3.75 && p->was_short)
		p->busy = min(p->busy, 0) - 1;
	else
		p->busy = 0;
	level = abs(p->busy);
	by = level < 4 ? 0 : level < 20 ? 1 : level < 36 ? 2 : level < 44 ? 4 :
	     level < 52 ? 8 : 16;
	p->rate *= p->busy > 0 ? 1 - by / 100. : 1 + by / 100.;
	p->rate = clamp_t(double, p->rate, .01, 100.);
	p->share = 1 - min(p->reads / (p->cost->period * p->rate), .5);
	p->reads = 0;
	p->waited = s->tag_wait;
	p->was_short = false;
}

static u64 vrate_window(struct wblaw *s)
{
	struct vrate *p = s->priv;

	if (s->now >= p->period_end) {
		if (p->period_end)
			vrate_period(s, p);
		p->period_end = s->now + p->cost->period;
	}
	return VRATE_TICK;
}

const struct wblaw_ops wblaw_vrate = {
	.name = "vrate",
	.setup = vrate_setup,
	.sent = vrate_sent,
	.read = vrate_read,
	.window = vrate_window,
	.bytes = vrate_bytes,
};

/* ---- fixed: so many bytes in flight, so many in one -------------------------- */

static u64 fixed_bytes(struct wblaw *s)
{
	return wblaw_active(s) && s->limit_kib ? (u64)s->limit_kib << 10 : U64_MAX;
}

static u64 fixed_max_io(struct wblaw *s)
{
	return wblaw_active(s) && s->io_kib ? (u64)s->io_kib << 10 : U64_MAX;
}

const struct wblaw_ops wblaw_fixed = {
	.name = "fixed",
	.bytes = fixed_bytes,
	.max_io = fixed_max_io,
};
