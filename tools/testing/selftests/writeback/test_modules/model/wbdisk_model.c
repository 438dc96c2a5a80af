// SPDX-License-Identifier: GPL-2.0
/*
 * The event core of the disk model, its host link, and the simplest model:
 * "fifo", a link and a fixed latency behind it.
 */
#include <kunit/visibility.h>
#include <linux/errno.h>
#include <linux/export.h>

#include "wbdisk_model.h"

static bool event_before(struct rb_node *a, const struct rb_node *b)
{
	const struct wbd_event *x = rb_entry(a, struct wbd_event, node);
	const struct wbd_event *y = rb_entry(b, struct wbd_event, node);

	if (x->when != y->when)
		return x->when < y->when;
	return x->order < y->order;
}

static struct wbd_event *first_event(const struct rb_root_cached *tree)
{
	struct rb_node *node = rb_first_cached(tree);

	return node ? rb_entry(node, struct wbd_event, node) : NULL;
}

/**
 * wbd_sim_schedule() - have an event happen
 * @sim: the disk
 * @event: not scheduled yet
 * @type: what happens
 * @when: time, not in the past
 */
void wbd_sim_schedule(struct wbd_sim *sim, struct wbd_event *event,
		      enum wbd_event_type type, u64 when)
{
	event->type = type;
	event->when = when;
	event->order = sim->order++;
	event->armed = true;
	rb_add_cached(&event->node,
		      type == WBD_EV_DONE ? &sim->completions : &sim->internal,
		      event_before);
}

/**
 * wbd_sim_finish() - the work of a command ends
 * @sim: the disk
 * @cmd: in no queue
 * @t: time at which its last transfer or program ends
 *
 * It completes latency_ns later, or up to latency_jitter_ns after that.
 */
void wbd_sim_finish(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	cmd->durable = !wbd_acks_early(sim, cmd);
	t += sim->cfg->latency_ns;
	if (sim->cfg->latency_jitter_ns)
		t += mul_u64_u64_div_u64(sim->cfg->latency_jitter_ns,
					 prandom_u32_state(&sim->rnd), U32_MAX);
	wbd_sim_schedule(sim, &cmd->event, WBD_EV_DONE, t);
}

/**
 * wbd_sim_jitter() - spread a duration
 * @sim: the disk
 * @ns: the duration
 *
 * Return: @ns, off by at most jitter_ppm either way.
 */
u64 wbd_sim_jitter(struct wbd_sim *sim, u64 ns)
{
	u32 ppm = sim->cfg->jitter_ppm;
	u64 span;

	if (!ppm)
		return ns;
	span = div_u64(ns * ppm, 1000000);
	return ns - span + mul_u64_u64_div_u64(2 * span,
					       prandom_u32_state(&sim->rnd),
					       U32_MAX);
}

static struct wbd_link *link_of(struct wbd_sim *sim, const struct wbd_cmd *cmd)
{
	return &sim->link[sim->cfg->link_duplex && cmd->op == WBD_READ];
}

/* At which rate a transfer goes that starts at @t; takes the credit it needs. */
static u32 link_rate(struct wbd_sim *sim, u32 bytes, u64 t)
{
	const struct wbd_config *cfg = sim->cfg;

	if (!cfg->burst_mbps)
		return cfg->link_mbps;
	sim->credit += div_u64((t - sim->credit_at) * cfg->link_mbps, 1000);
	sim->credit = min(sim->credit, (u64)cfg->burst_mib << 20);
	sim->credit_at = t;
	if (sim->credit < bytes)
		return cfg->link_mbps;
	sim->credit -= bytes;
	return cfg->burst_mbps;
}

/*
 * The bandwidth is looked at here and nowhere else: a change of link_mbps holds
 * for every transfer that has not started.
 */
static void link_start(struct wbd_sim *sim, struct wbd_link *link, u64 t)
{
	struct wbd_cmd *cmd;
	u64 ns;

	if (link->busy || list_empty(&link->queue))
		return;
	cmd = list_first_entry(&link->queue, struct wbd_cmd, node);
	list_del_init(&cmd->node);
	link->busy = cmd;
	ns = wbd_xfer_ns(cmd->bytes, link_rate(sim, cmd->bytes, t));
	ns = wbd_sim_jitter(sim, ns + sim->cfg->command_ns);
	/* Data that comes off the flash more slowly keeps the link waiting. */
	wbd_sim_schedule(sim, &link->event, WBD_EV_LINK,
			 max(t + ns, cmd->data_end));
}

/**
 * wbd_sim_transfer() - the data of a command may go over the link
 * @sim: the disk
 * @cmd: in no queue
 * @t: now
 *
 * Of the commands that are ready the link serves the one that arrived first.
 */
void wbd_sim_transfer(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	struct wbd_link *link = link_of(sim, cmd);
	struct wbd_cmd *other;

	list_for_each_entry_reverse(other, &link->queue, node)
		if (other->seq < cmd->seq)
			break;
	list_add(&cmd->node, &other->node);
	link_start(sim, link, t);
}

static void link_event(struct wbd_sim *sim, struct wbd_link *link, u64 t)
{
	struct wbd_cmd *cmd = link->busy;

	link->busy = NULL;
	sim->ops->linked(sim, cmd, t);
	link_start(sim, link, t);
}

static bool served_alone(const struct wbd_sim *sim, const struct wbd_cmd *cmd)
{
	return cmd->op == WBD_FLUSH && sim->cfg->flush_drains;
}

static void start(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	sim->inflight++;
	sim->exclusive = served_alone(sim, cmd);
	sim->ops->arrive(sim, cmd, t);
}

static void start_held(struct wbd_sim *sim, u64 t)
{
	struct wbd_cmd *cmd, *next;

	list_for_each_entry_safe(cmd, next, &sim->held, node) {
		if (sim->exclusive || (sim->inflight && served_alone(sim, cmd)))
			break;
		list_del_init(&cmd->node);
		start(sim, cmd, t);
	}
}

/**
 * wbd_sim_queue() - a command arrives
 * @sim: the disk
 * @cmd: op, fua, sector and bytes set; the disk's until wbd_sim_pop() returns it
 * @now: time, not before that of any earlier call
 */
void wbd_sim_queue(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 now)
{
	wbd_sim_advance(sim, now);
	cmd->seq = sim->arrivals++;
	cmd->arrived = now;
	cmd->data_end = 0;
	cmd->log_end = 0;
	cmd->event.armed = false;
	INIT_LIST_HEAD(&cmd->node);
	list_add_tail(&cmd->node, &sim->held);
	start_held(sim, now);
}
EXPORT_SYMBOL_IF_KUNIT(wbd_sim_queue);

static void happen(struct wbd_sim *sim, struct wbd_event *event)
{
	u64 t = event->when;
	struct wbd_cmd *cmd;

	event->armed = false;
	switch (event->type) {
	case WBD_EV_DONE:
		cmd = container_of(event, struct wbd_cmd, event);
		list_add_tail(&cmd->node, &sim->done);
		sim->inflight--;
		if (served_alone(sim, cmd))
			sim->exclusive = false;
		start_held(sim, t);
		break;
	case WBD_EV_LINK:
		link_event(sim, container_of(event, struct wbd_link, event), t);
		break;
	default:
		sim->ops->event(sim, event, t);
	}
}

/**
 * wbd_sim_advance() - let everything happen that is due
 * @sim: the disk
 * @now: time, not before that of any earlier call
 *
 * Events happen in order and each at its own time, however late the call is.
 */
void wbd_sim_advance(struct wbd_sim *sim, u64 now)
{
	for (;;) {
		struct wbd_event *event = first_event(&sim->internal);
		struct wbd_event *done = first_event(&sim->completions);
		struct rb_root_cached *tree = &sim->internal;

		if (!event || (done && event_before(&done->node, &event->node))) {
			event = done;
			tree = &sim->completions;
		}
		if (!event || event->when > now)
			break;
		rb_erase_cached(&event->node, tree);
		sim->now = event->when;
		happen(sim, event);
	}
	sim->now = now;
}
EXPORT_SYMBOL_IF_KUNIT(wbd_sim_advance);

/**
 * wbd_sim_next() - when wbd_sim_advance() must be called next
 * @sim: the disk
 *
 * No event other than a completion completes a command sooner than latency_ns
 * after it, so nothing is late if it is looked at that much later.  This saves
 * most commands a second timer interrupt.
 *
 * Return: time, or WBD_NEVER.
 */
u64 wbd_sim_next(const struct wbd_sim *sim)
{
	const struct wbd_event *event = first_event(&sim->internal);
	const struct wbd_event *done = first_event(&sim->completions);
	u64 next = WBD_NEVER;

	if (!list_empty(&sim->done))
		return sim->now;
	if (event)
		next = event->when + sim->cfg->latency_ns;
	if (done)
		next = min(next, done->when);
	return next;
}
EXPORT_SYMBOL_IF_KUNIT(wbd_sim_next);

/**
 * wbd_sim_pop() - take a completed command out of the disk
 * @sim: the disk
 *
 * Return: commands in the order in which they completed, then NULL.
 */
struct wbd_cmd *wbd_sim_pop(struct wbd_sim *sim)
{
	struct wbd_cmd *cmd;

	cmd = list_first_entry_or_null(&sim->done, struct wbd_cmd, node);
	if (cmd)
		list_del_init(&cmd->node);
	return cmd;
}
EXPORT_SYMBOL_IF_KUNIT(wbd_sim_pop);

/**
 * wbd_sim_retired() - how much of what was acknowledged is on the medium
 * @sim: the disk, advanced to now
 *
 * Return: position in the write log; every write whose log_end is not behind it
 * survives a power cut.
 */
u64 wbd_sim_retired(struct wbd_sim *sim)
{
	return sim->ops->retired(sim, sim->now);
}
EXPORT_SYMBOL_IF_KUNIT(wbd_sim_retired);

/**
 * wbd_sim_reset() - forget all commands and cached writes
 * @sim: the disk
 */
void wbd_sim_reset(struct wbd_sim *sim)
{
	int i;

	sim->internal = RB_ROOT_CACHED;
	sim->completions = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&sim->done);
	INIT_LIST_HEAD(&sim->held);
	for (i = 0; i < ARRAY_SIZE(sim->link); i++) {
		INIT_LIST_HEAD(&sim->link[i].queue);
		sim->link[i].busy = NULL;
		sim->link[i].event.armed = false;
	}
	sim->inflight = 0;
	sim->exclusive = false;
	sim->ops->reset(sim);
}
EXPORT_SYMBOL_IF_KUNIT(wbd_sim_reset);

/* ---- fifo: a link, and a fixed latency behind it ------------------------- */

static int fifo_init(struct wbd_sim *sim)
{
	return 0;
}

static void fifo_nothing(struct wbd_sim *sim)
{
}

static void fifo_linked(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	wbd_sim_finish(sim, cmd, t);
}

static void fifo_arrive(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	cmd->log_end = cmd->seq + 1;
	wbd_sim_transfer(sim, cmd, t);
}

static void fifo_event(struct wbd_sim *sim, struct wbd_event *event, u64 t)
{
}

/* A cache without a medium behind it: drained at once, or never by itself. */
static u64 fifo_retired(struct wbd_sim *sim, u64 t)
{
	return sim->cfg->lazy_cache ? 0 : WBD_NEVER;
}

static const struct wbd_model_ops fifo_ops = {
	.init = fifo_init,
	.destroy = fifo_nothing,
	.reset = fifo_nothing,
	.arrive = fifo_arrive,
	.linked = fifo_linked,
	.event = fifo_event,
	.retired = fifo_retired,
};

/**
 * wbd_sim_init() - set a disk up
 * @sim: what to set up
 * @cfg: its numbers, checked by wbd_config_check(); must outlive @sim
 *
 * Return: 0 or -ENOMEM.
 */
int wbd_sim_init(struct wbd_sim *sim, const struct wbd_config *cfg)
{
	static const struct wbd_model_ops *const models[] = {
		[WBD_MODEL_FIFO] = &fifo_ops,
		[WBD_MODEL_SSD] = &wbd_ssd_ops,
		[WBD_MODEL_HDD] = &wbd_hdd_ops,
	};
	int err;

	memset(sim, 0, sizeof(*sim));
	sim->cfg = cfg;
	sim->ops = models[cfg->model];
	prandom_seed_state(&sim->rnd, cfg->seed);
	sim->credit = (u64)cfg->burst_mib << 20;
	err = sim->ops->init(sim);
	if (err)
		return err;
	wbd_sim_reset(sim);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(wbd_sim_init);

/**
 * wbd_sim_destroy() - free what wbd_sim_init() allocated
 * @sim: the disk
 */
void wbd_sim_destroy(struct wbd_sim *sim)
{
	sim->ops->destroy(sim);
}
EXPORT_SYMBOL_IF_KUNIT(wbd_sim_destroy);
