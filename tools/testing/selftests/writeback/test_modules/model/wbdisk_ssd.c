// SPDX-License-Identifier: GPL-2.0
/*
 * The SSD model.
 *
 * Reads: a die senses a page (t_read_ns), its channel moves the data, then the
 * link does.  Which die holds a page follows from the page's number.
 *
 * Writes: the link moves the data into the write buffer, where there must be
 * room for it first; that acknowledges the command.  The buffer is a log that is
 * cut into units of prog_kib, which go round robin to the dies: channel, then
 * program (t_prog_ns).  A die takes commands in order of their arrival at it, so
 * a read waits behind the programs of its die.  The room is free again when the
 * program ends.  A unit that is not full waits for more data or for a flush.
 *
 * Every die and channel is a time at which it is next free.  A read takes its
 * channel at the end of the sensing, which is later where its die is busy: until
 * then programs have it.  One that comes in between and is still moved then is
 * not in its way, nor it in that's (at most one page's transfer).
 *
 * Left out: garbage collection, erase, mapping misses, reads served from the
 * buffer, reads that overtake or suspend programs.
 */
#include <linux/cpumask.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "wbdisk_model.h"

struct ssd_unit {
	u64 end;		/* of its program, if issued */
	u32 bytes;
	bool issued;
};

struct ssd {
	u32 dies, channels;
	u32 page, unit;		/* bytes */
	u64 *die_free;
	u64 *chan_free;
	u64 *read_free;		/* the same for reads that are still sensed */
	/* Units [head, tail) of the log are in the ring, tail is the open one. */
	struct ssd_unit *ring;
	u32 slots;
	u32 limit;		/* units from which on no write is let in */
	u64 head, tail;
	u32 open;		/* bytes in the open unit */
	u64 used, size;		/* bytes of the buffer, transfers included */
	u64 last_end;		/* of all programs issued */
	struct list_head blocked;	/* writes that wait for room */
	struct wbd_event space;
};

static struct ssd_unit *slot(const struct ssd *ssd, u64 unit)
{
	u32 index;

	div_u64_rem(unit, ssd->slots, &index);
	return &ssd->ring[index];
}

static void ssd_destroy(struct wbd_sim *sim)
{
	struct ssd *ssd = sim->priv;

	kvfree(ssd->ring);
	kfree(ssd->read_free);
	kfree(ssd->chan_free);
	kfree(ssd->die_free);
	kfree(ssd);
	sim->priv = NULL;
}

static int ssd_init(struct wbd_sim *sim)
{
	const struct wbd_config *cfg = sim->cfg;
	struct ssd *ssd = kzalloc(sizeof(*ssd), GFP_KERNEL);
	u32 tags;

	if (!ssd)
		return -ENOMEM;
	sim->priv = ssd;
	ssd->channels = cfg->channels;
	ssd->dies = cfg->channels * cfg->dies_per_channel;
	ssd->page = cfg->page_kib << 10;
	ssd->unit = cfg->prog_kib << 10;
	ssd->size = (u64)cfg->write_buffer_kib << 10;
	tags = (cfg->queues ?: num_possible_cpus()) * cfg->queue_depth;
	/* Small FUA writes take a unit each: they fill the ring, not the buffer. */
	ssd->limit = div_u64(ssd->size, SZ_4K);
	/* Whatever is on its way over the link then still fits. */
	ssd->slots = ssd->limit + div_u64(ssd->size, ssd->unit) +
		     (cfg->max_io_kib << 10) / ssd->unit + 2 * tags + 1;
	ssd->die_free = kcalloc(ssd->dies, sizeof(u64), GFP_KERNEL);
	ssd->chan_free = kcalloc(ssd->channels, sizeof(u64), GFP_KERNEL);
	ssd->read_free = kcalloc(ssd->channels, sizeof(u64), GFP_KERNEL);
	ssd->ring = kvcalloc(ssd->slots, sizeof(*ssd->ring), GFP_KERNEL);
	if (ssd->die_free && ssd->chan_free && ssd->read_free && ssd->ring)
		return 0;
	ssd_destroy(sim);
	return -ENOMEM;
}

static void ssd_reset(struct wbd_sim *sim)
{
	struct ssd *ssd = sim->priv;

	memset(ssd->die_free, 0, ssd->dies * sizeof(u64));
	memset(ssd->chan_free, 0, ssd->channels * sizeof(u64));
	memset(ssd->read_free, 0, ssd->channels * sizeof(u64));
	/* log_end of older writes must stay behind what has retired. */
	ssd->head = ssd->tail;
	ssd->open = 0;
	ssd->used = 0;
	ssd->last_end = 0;
	ssd->space.armed = false;
	INIT_LIST_HEAD(&ssd->blocked);
}

static u64 chan_move(struct wbd_sim *sim, u32 channel, u32 bytes, u64 t)
{
	struct ssd *ssd = sim->priv;

	t = max(t, ssd->chan_free[channel]) +
	    wbd_xfer_ns(bytes, sim->cfg->channel_mbps);
	ssd->chan_free[channel] = t;
	return t;
}

/*
 * What is still sensed when all that the channel has to move now is moved, takes
 * it later, and leaves it to programs until then.
 */
static u64 chan_read(struct wbd_sim *sim, u32 channel, u32 bytes, u64 sensed)
{
	struct ssd *ssd = sim->priv;
	u64 t = max(sensed, ssd->read_free[channel]);

	if (t <= ssd->chan_free[channel])
		return chan_move(sim, channel, bytes, t);
	t += wbd_xfer_ns(bytes, sim->cfg->channel_mbps);
	ssd->read_free[channel] = t;
	return t;
}

/* ---- reads --------------------------------------------------------------- */

static void ssd_read(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	struct ssd *ssd = sim->priv;
	u64 pos = cmd->sector << 9;
	u64 end = pos + cmd->bytes;
	u64 first = 0, last = t;
	u32 off;
	u64 lpn = div_u64_rem(pos, ssd->page, &off);

	for (; pos < end; lpn++, off = 0) {
		u32 bytes = min_t(u64, ssd->page - off, end - pos);
		u32 die;
		u64 sensed, moved;

		div_u64_rem(lpn, ssd->dies, &die);
		sensed = max(t, ssd->die_free[die]) +
			 wbd_sim_jitter(sim, sim->cfg->t_read_ns);
		ssd->die_free[die] = sensed;
		moved = chan_read(sim, die % ssd->channels, bytes, sensed);
		if (!first)
			first = moved;
		if (moved >= last) {
			last = moved;
			/* The link is behind the last page by its transfer. */
			cmd->data_end = moved +
				wbd_xfer_ns(bytes, sim->cfg->link_mbps);
		}
		pos += bytes;
	}
	/* The link starts with the first page while others are still sensed. */
	wbd_sim_schedule(sim, &cmd->event, WBD_EV_DATA, max(first, t));
}

/* ---- the write log ------------------------------------------------------- */

/* A drive programs fast what it will move to its place later, as long as it can. */
static u32 prog_ns(const struct wbd_sim *sim, u64 number)
{
	const struct wbd_config *cfg = sim->cfg;

	if (!cfg->t_prog_full_ns || number * cfg->prog_kib < cfg->slc_mib * 1024ULL)
		return cfg->t_prog_ns;
	return cfg->t_prog_full_ns;
}

static void issue(struct wbd_sim *sim, u64 number, u64 t)
{
	struct ssd *ssd = sim->priv;
	struct ssd_unit *unit = slot(ssd, number);
	u32 die;

	if (unit->issued)
		return;
	div_u64_rem(number, ssd->dies, &die);
	t = chan_move(sim, die % ssd->channels, unit->bytes, t);
	t = max(t, ssd->die_free[die]) + wbd_sim_jitter(sim, prog_ns(sim, number));
	ssd->die_free[die] = t;
	unit->end = t;
	unit->issued = true;
	ssd->last_end = max(ssd->last_end, t);
}

static void issue_all(struct wbd_sim *sim, u64 t)
{
	struct ssd *ssd = sim->priv;
	u64 number;

	for (number = ssd->head; number < ssd->tail; number++)
		issue(sim, number, t);
}

static void close_unit(struct wbd_sim *sim, u64 t)
{
	struct ssd *ssd = sim->priv;
	struct ssd_unit *unit = slot(ssd, ssd->tail);

	if (!ssd->open)
		return;
	unit->bytes = ssd->open;
	unit->issued = false;
	ssd->open = 0;
	ssd->tail++;
	if (!sim->cfg->lazy_cache)
		issue(sim, ssd->tail - 1, t);
}

static void append(struct wbd_sim *sim, u32 bytes, u64 t)
{
	struct ssd *ssd = sim->priv;

	while (bytes) {
		u32 part = min(bytes, ssd->unit - ssd->open);

		ssd->open += part;
		bytes -= part;
		if (ssd->open == ssd->unit)
			close_unit(sim, t);
	}
}

static void retire(struct ssd *ssd, u64 t)
{
	while (ssd->head < ssd->tail) {
		struct ssd_unit *unit = slot(ssd, ssd->head);

		if (!unit->issued || unit->end > t)
			break;
		ssd->used -= unit->bytes;
		ssd->head++;
	}
}

static bool fits(const struct ssd *ssd, u32 bytes)
{
	/* A write larger than the buffer goes when nothing else is in it. */
	return (ssd->used + bytes <= ssd->size || ssd->used == ssd->open) &&
	       ssd->tail - ssd->head < ssd->limit;
}

/* Let writes onto the link for which there is room, in order. */
static void admit(struct wbd_sim *sim, u64 t)
{
	struct ssd *ssd = sim->priv;
	struct wbd_cmd *cmd;

	retire(ssd, t);
	while (!list_empty(&ssd->blocked)) {
		cmd = list_first_entry(&ssd->blocked, struct wbd_cmd, node);
		if (!fits(ssd, cmd->bytes))
			break;
		list_del_init(&cmd->node);
		ssd->used += cmd->bytes;
		wbd_sim_transfer(sim, cmd, t);
	}
	if (list_empty(&ssd->blocked) || ssd->space.armed)
		return;
	issue_all(sim, t);
	/* Nothing there to retire: a transfer under way brings it. */
	if (ssd->head < ssd->tail)
		wbd_sim_schedule(sim, &ssd->space, WBD_EV_SPACE,
				 slot(ssd, ssd->head)->end);
}

static void ssd_written(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	struct ssd *ssd = sim->priv;
	bool early = wbd_acks_early(sim, cmd);
	u64 first, end = t;

	/* The adversarial drive writes what it must and nothing else. */
	if (!early && sim->cfg->lazy_cache)
		close_unit(sim, t);
	first = ssd->tail;
	append(sim, cmd->bytes, t);
	if (!early) {
		close_unit(sim, t);
		for (; first < ssd->tail; first++) {
			issue(sim, first, t);
			end = max(end, slot(ssd, first)->end);
		}
	}
	cmd->log_end = ssd->tail + !!ssd->open;
	wbd_sim_finish(sim, cmd, end);
	admit(sim, t);
}

/* ---- the model ----------------------------------------------------------- */

static void ssd_arrive(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	struct ssd *ssd = sim->priv;

	switch (cmd->op) {
	case WBD_READ:
		ssd_read(sim, cmd, t);
		break;
	case WBD_WRITE:
		list_add_tail(&cmd->node, &ssd->blocked);
		admit(sim, t);
		break;
	case WBD_FLUSH:
		close_unit(sim, t);
		issue_all(sim, t);
		wbd_sim_finish(sim, cmd, max(t, ssd->last_end));
		break;
	default:
		wbd_sim_transfer(sim, cmd, t);
	}
}

static void ssd_linked(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	struct ssd *ssd = sim->priv;

	if (cmd->op == WBD_WRITE) {
		ssd_written(sim, cmd, t);
	} else {
		/*
		 * A discard takes its place behind the writes before it, and
		 * like them waits for a flush if the cache is lazy.
		 */
		cmd->log_end = ssd->tail +
			       (ssd->open || sim->cfg->lazy_cache);
		wbd_sim_finish(sim, cmd, t);
	}
}

static void ssd_event(struct wbd_sim *sim, struct wbd_event *event, u64 t)
{
	if (event->type == WBD_EV_SPACE)
		admit(sim, t);
	else
		wbd_sim_transfer(sim, container_of(event, struct wbd_cmd, event),
				 t);
}

static u64 ssd_retired(struct wbd_sim *sim, u64 t)
{
	struct ssd *ssd = sim->priv;

	retire(ssd, t);
	return ssd->head;
}

const struct wbd_model_ops wbd_ssd_ops = {
	.init = ssd_init,
	.destroy = ssd_destroy,
	.reset = ssd_reset,
	.arrive = ssd_arrive,
	.linked = ssd_linked,
	.event = ssd_event,
	.retired = ssd_retired,
};
