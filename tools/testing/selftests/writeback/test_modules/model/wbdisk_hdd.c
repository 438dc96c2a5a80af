// SPDX-License-Identifier: GPL-2.0
/*
 * The hard disk model: one arm over rotating platters.
 *
 * Serving a command takes a seek (seek_min_ns plus the square root of the
 * distance), the wait until its first sector comes round, and the transfer at
 * the rate of its zone.  When the arm is free it takes, of all commands in the
 * device, the one with the shortest seek and wait, or the oldest if that is
 * older than age_limit_ms.  While nothing is left to do it reads on into a
 * buffer, so that sequential reads one at a time do not lose a rotation each.
 *
 * With write_cache, writes are acknowledged from the buffer; they reach the
 * medium when no other command waits, or when there is no room or a flush.
 *
 * Track skew is perfect: a sequential transfer never waits.  Reads served
 * from the write buffer are left out, so is the link but for cached data: the
 * medium is slower.
 */
#include <linux/cpumask.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/time64.h>

#include "wbdisk_model.h"
#include "wbdisk_platter.h"

/* Contiguous cached writes are one piece of work for the arm up to this. */
#define MERGE_MAX	SZ_1M
/* Cached writes the arm chooses from; looking at all would be slow. */
#define WINDOW		32

/* Work for the arm: a command, or a piece of the write cache. */
struct job {
	struct list_head node;
	struct wbd_cmd *cmd;	/* NULL: cached data */
	u64 pos;		/* byte */
	u32 bytes;
	u64 log;		/* position in the write log of its first write */
	u64 since;
};

struct hdd {
	struct wbd_platter platter;
	struct list_head waiting;	/* commands for the arm */
	struct list_head dirty;		/* cached writes, oldest first */
	struct list_head blocked;	/* writes that wait for room */
	struct list_head flushes;
	struct list_head spare;
	struct job *jobs;
	struct job *busy;
	struct wbd_event arm;
	u64 head;		/* byte at which the last job ended */
	u64 head_at;		/* and when */
	bool head_read;		/* it was a read, and the arm reads on */
	u64 used, size;		/* bytes of the write buffer */
	u64 log;		/* number of cached writes */
};

static void hdd_destroy(struct wbd_sim *sim)
{
	struct hdd *hdd = sim->priv;

	kvfree(hdd->jobs);
	kfree(hdd);
	sim->priv = NULL;
}

/* A job for each 4 KiB of the cache and for each command. */
static u32 nr_jobs(const struct wbd_config *cfg)
{
	u32 queues = cfg->queues ?: num_possible_cpus();

	return cfg->write_buffer_kib / 4 + queues * cfg->queue_depth + 1;
}

static int hdd_init(struct wbd_sim *sim)
{
	const struct wbd_config *cfg = sim->cfg;
	struct hdd *hdd = kzalloc(sizeof(*hdd), GFP_KERNEL);

	if (!hdd)
		return -ENOMEM;
	sim->priv = hdd;
	hdd->jobs = kvcalloc(nr_jobs(cfg), sizeof(*hdd->jobs), GFP_KERNEL);
	if (!hdd->jobs) {
		hdd_destroy(sim);
		return -ENOMEM;
	}
	hdd->size = (u64)cfg->write_buffer_kib << 10;
	wbd_platter_init(&hdd->platter, cfg);
	return 0;
}

static void hdd_reset(struct wbd_sim *sim)
{
	struct hdd *hdd = sim->priv;
	u32 i, n = nr_jobs(sim->cfg);

	INIT_LIST_HEAD(&hdd->waiting);
	INIT_LIST_HEAD(&hdd->dirty);
	INIT_LIST_HEAD(&hdd->blocked);
	INIT_LIST_HEAD(&hdd->flushes);
	INIT_LIST_HEAD(&hdd->spare);
	for (i = 0; i < n; i++)
		list_add_tail(&hdd->jobs[i].node, &hdd->spare);
	hdd->busy = NULL;
	hdd->arm.armed = false;
	hdd->head = 0;
	hdd->head_at = 0;
	hdd->head_read = false;
	hdd->used = 0;
}

/* ---- mechanics ----------------------------------------------------------- */

static u64 media_ns(const struct wbd_sim *sim, u64 pos, u64 bytes)
{
	const struct hdd *hdd = sim->priv;

	return wbd_xfer_ns(bytes, min(wbd_platter_mbps(&hdd->platter, pos),
				      sim->cfg->link_mbps));
}

/* When the arm could start to transfer @pos if told so at @t. */
static u64 position(const struct wbd_sim *sim, u64 pos, u64 t)
{
	const struct hdd *hdd = sim->priv;

	if (pos == hdd->head && t <= hdd->head_at + WBD_CATCH_NS)
		return t;
	t += wbd_platter_seek_ns(&hdd->platter, hdd->head, pos);
	return wbd_platter_rotate(&hdd->platter, pos, t);
}

/*
 * When the data of a read that the idle arm has read on to is in the buffer, or
 * WBD_NEVER if it has not come that far.
 */
static u64 readahead(const struct wbd_sim *sim, const struct job *job)
{
	const struct hdd *hdd = sim->priv;
	u64 end = job->pos + job->bytes;

	if (!hdd->head_read || !job->cmd || job->cmd->op != WBD_READ ||
	    job->pos < hdd->head ||
	    end - hdd->head > (u64)sim->cfg->readahead_kib << 10)
		return WBD_NEVER;
	return hdd->head_at + media_ns(sim, hdd->head, end - hdd->head);
}

/* ---- the arm ------------------------------------------------------------- */

static struct job *oldest(struct wbd_sim *sim, bool cached, u64 t)
{
	struct hdd *hdd = sim->priv;
	u64 limit = (u64)sim->cfg->age_limit_ms * NSEC_PER_MSEC;
	struct job *a, *b;

	a = list_first_entry_or_null(&hdd->waiting, struct job, node);
	b = list_first_entry_or_null(&hdd->dirty, struct job, node);
	if (!a || (cached && b && b->since < a->since))
		a = b;
	return a && t - a->since > limit && (a->cmd || cached) ? a : NULL;
}

static void nearest(struct wbd_sim *sim, struct list_head *list, int max, u64 t,
		    struct job **best, u64 *best_at)
{
	struct job *job;

	list_for_each_entry(job, list, node) {
		u64 at;

		if (!max--)
			break;
		at = min(position(sim, job->pos, t), readahead(sim, job));
		if (at < *best_at) {
			*best_at = at;
			*best = job;
		}
	}
}

static bool must_drain(const struct hdd *hdd)
{
	return !list_empty(&hdd->blocked) || !list_empty(&hdd->flushes);
}

static void arm_start(struct wbd_sim *sim, u64 t)
{
	struct hdd *hdd = sim->priv;
	bool idle = list_empty(&hdd->waiting);
	bool cached = must_drain(hdd) || (idle && !sim->cfg->lazy_cache);
	u64 at = WBD_NEVER, end, ahead, buffered;
	struct job *job;

	if (hdd->busy)
		return;
	job = oldest(sim, cached, t);
	if (!job) {
		nearest(sim, &hdd->waiting, INT_MAX, t, &job, &at);
		if (cached)
			nearest(sim, &hdd->dirty, WINDOW, t, &job, &at);
	}
	if (!job)
		return;

	list_del_init(&job->node);
	hdd->busy = job;
	at = position(sim, job->pos, t);
	end = t + wbd_sim_jitter(sim, at + media_ns(sim, job->pos, job->bytes) - t);
	ahead = readahead(sim, job);
	hdd->head_at = min(ahead, end);
	if (ahead < end) {
		buffered = t + wbd_xfer_ns(job->bytes, sim->cfg->link_mbps);
		/* The arm passed the end of this job, perhaps long ago. */
		end = max(ahead, buffered);
	}
	hdd->head = job->pos + job->bytes;
	hdd->head_read = job->cmd && job->cmd->op == WBD_READ;
	wbd_sim_schedule(sim, &hdd->arm, WBD_EV_HEAD, end);
}

static struct job *new_job(struct hdd *hdd, struct wbd_cmd *cmd, u64 t)
{
	struct job *job = list_first_entry(&hdd->spare, struct job, node);

	job->cmd = NULL;
	job->pos = cmd->sector << 9;
	job->bytes = cmd->bytes;
	job->since = t;
	return job;
}

static void wait_for_arm(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	struct hdd *hdd = sim->priv;
	struct job *job = new_job(hdd, cmd, cmd->arrived);

	job->cmd = cmd;
	list_move_tail(&job->node, &hdd->waiting);
	arm_start(sim, t);
}

/* ---- the write cache ----------------------------------------------------- */

static void admit(struct wbd_sim *sim, u64 t)
{
	struct hdd *hdd = sim->priv;
	struct wbd_cmd *cmd;

	while (!list_empty(&hdd->blocked)) {
		cmd = list_first_entry(&hdd->blocked, struct wbd_cmd, node);
		if (hdd->used && hdd->used + max_t(u32, cmd->bytes, SZ_4K) >
		    hdd->size)
			break;
		list_del_init(&cmd->node);
		/* At least one job's worth, so that the jobs suffice. */
		hdd->used += max_t(u32, cmd->bytes, SZ_4K);
		wbd_sim_transfer(sim, cmd, t);
	}
}

static void cache_write(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	struct hdd *hdd = sim->priv;
	u64 pos = cmd->sector << 9;
	struct job *last;

	cmd->log_end = ++hdd->log;
	last = list_empty(&hdd->dirty) ? NULL :
		list_last_entry(&hdd->dirty, struct job, node);
	if (last && last->pos + last->bytes == pos &&
	    last->bytes + cmd->bytes <= MERGE_MAX &&
	    last->bytes % SZ_4K == 0 && cmd->bytes % SZ_4K == 0) {
		last->bytes += cmd->bytes;
	} else {
		last = new_job(hdd, cmd, t);
		last->log = cmd->log_end - 1;
		list_move_tail(&last->node, &hdd->dirty);
	}
	wbd_sim_finish(sim, cmd, t);
	arm_start(sim, t);
}

static u64 hdd_retired(struct wbd_sim *sim, u64 t)
{
	struct hdd *hdd = sim->priv;
	u64 log = hdd->log;

	if (!list_empty(&hdd->dirty))
		log = list_first_entry(&hdd->dirty, struct job, node)->log;
	if (hdd->busy && !hdd->busy->cmd)
		log = min(log, hdd->busy->log);
	return log;
}

static void finish_flushes(struct wbd_sim *sim, u64 t)
{
	struct hdd *hdd = sim->priv;
	struct wbd_cmd *cmd, *next;

	list_for_each_entry_safe(cmd, next, &hdd->flushes, node) {
		if (cmd->log_end > hdd_retired(sim, t))
			break;
		list_del_init(&cmd->node);
		wbd_sim_finish(sim, cmd, t);
	}
}

static void arm_free(struct wbd_sim *sim, u64 t)
{
	struct hdd *hdd = sim->priv;
	struct job *job = hdd->busy;

	hdd->busy = NULL;
	list_add(&job->node, &hdd->spare);
	if (job->cmd) {
		wbd_sim_finish(sim, job->cmd, t);
	} else {
		hdd->used -= max_t(u32, job->bytes, SZ_4K);
		finish_flushes(sim, t);
		admit(sim, t);
	}
	arm_start(sim, t);
}

/* ---- the model ----------------------------------------------------------- */

static void hdd_arrive(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	struct hdd *hdd = sim->priv;

	switch (cmd->op) {
	case WBD_FLUSH:
		cmd->log_end = hdd->log;
		list_add_tail(&cmd->node, &hdd->flushes);
		finish_flushes(sim, t);
		arm_start(sim, t);
		break;
	case WBD_WRITE:
		if (wbd_acks_early(sim, cmd)) {
			list_add_tail(&cmd->node, &hdd->blocked);
			admit(sim, t);
			arm_start(sim, t);
			break;
		}
		fallthrough;
	case WBD_READ:
		wait_for_arm(sim, cmd, t);
		break;
	default:
		wbd_sim_transfer(sim, cmd, t);
	}
}

static void hdd_linked(struct wbd_sim *sim, struct wbd_cmd *cmd, u64 t)
{
	struct hdd *hdd = sim->priv;

	if (cmd->op == WBD_WRITE) {
		cache_write(sim, cmd, t);
	} else {
		/* As behind a write that waits for a flush. */
		cmd->log_end = hdd->log + !!sim->cfg->lazy_cache;
		wbd_sim_finish(sim, cmd, t);
	}
}

static void hdd_event(struct wbd_sim *sim, struct wbd_event *event, u64 t)
{
	arm_free(sim, t);
}

const struct wbd_model_ops wbd_hdd_ops = {
	.init = hdd_init,
	.destroy = hdd_destroy,
	.reset = hdd_reset,
	.arrive = hdd_arrive,
	.linked = hdd_linked,
	.event = hdd_event,
	.retired = hdd_retired,
};
