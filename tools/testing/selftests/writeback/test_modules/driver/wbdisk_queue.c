// SPDX-License-Identifier: GPL-2.0
/*
 * Requests on their way through the model.
 *
 * The dispatch path is that of a real driver: it never sleeps.  Completions come
 * from one hrtimer per disk that stands for the drive's interrupt, so it expires
 * in hard interrupt context (a softirq could be put off behind other work, and
 * with it the time that the model says); as with real drivers blk-mq then
 * completes in the block softirq if there is a single queue, and at once if there
 * are several.  The work of the interrupt is bounded by the commands due.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bio.h>
#include <linux/highmem.h>
#include <linux/timekeeping.h>

#include "wbdisk.h"

#define CREATE_TRACE_POINTS
#include "wbdisk_trace.h"

/* blk-mq tries again after 3 ms: give up after about three seconds. */
#define MAX_TRIES	1000

static struct wbd_rq *wbd_rq_of(struct wbd_cmd *cmd)
{
	return container_of(cmd, struct wbd_rq, cmd);
}

/* ---- out of the model ---------------------------------------------------- */

static void arm(struct wbd_dev *dev)
{
	u64 next = wbd_sim_next(&dev->sim);

	if (next != WBD_NEVER)
		next = max(next, dev->stall_until);
	if (next >= dev->armed)
		return;
	dev->armed = next;
	hrtimer_start(&dev->timer, ns_to_ktime(next), HRTIMER_MODE_ABS);
}

/* A command leaves the device, by whichever way. */
static void leave(struct wbd_dev *dev, struct wbd_rq *wrq, blk_status_t status,
		  u64 now, struct list_head *done)
{
	if (!wrq->status)
		wrq->status = status;
	wrq->state = WBD_RQ_DONE;
	wbd_stats_done(dev, &wrq->cmd, now);
	trace_wbdisk_complete(dev->disk, &wrq->cmd, now - wrq->cmd.arrived,
			      blk_status_to_errno(wrq->status));
	list_move_tail(&wrq->active, done);
}

static void hand_over(struct list_head *done)
{
	struct wbd_rq *wrq, *next;

	list_for_each_entry_safe(wrq, next, done, active) {
		list_del_init(&wrq->active);
		blk_mq_complete_request(blk_mq_rq_from_pdu(wrq));
	}
}

enum hrtimer_restart wbd_timer(struct hrtimer *timer)
{
	struct wbd_dev *dev = container_of(timer, struct wbd_dev, timer);
	struct wbd_cmd *cmd;
	unsigned long flags;
	LIST_HEAD(done);
	u64 now;

	spin_lock_irqsave(&dev->lock, flags);
	now = ktime_get_ns();
	dev->armed = WBD_NEVER;
	wbd_sim_advance(&dev->sim, now);
	if (now >= dev->stall_until)
		while ((cmd = wbd_sim_pop(&dev->sim)))
			leave(dev, wbd_rq_of(cmd), BLK_STS_OK, now, &done);
	wbd_store_retire(&dev->store, wbd_sim_retired(&dev->sim));
	arm(dev);
	spin_unlock_irqrestore(&dev->lock, flags);
	hand_over(&done);
	return HRTIMER_NORESTART;
}

/**
 * wbd_settle() - let the model and the data catch up with the clock
 * @dev: the disk; nothing happens unless it is on
 */
void wbd_settle(struct wbd_dev *dev)
{
	unsigned long flags;

	spin_lock_irqsave(&dev->lock, flags);
	if (dev->sim.ops && !dev->dead) {
		wbd_sim_advance(&dev->sim, ktime_get_ns());
		wbd_store_retire(&dev->store, wbd_sim_retired(&dev->sim));
		arm(dev);
	}
	spin_unlock_irqrestore(&dev->lock, flags);
}

/* ---- data ---------------------------------------------------------------- */

static blk_status_t stage_data(struct wbd_dev *dev, struct request *rq,
			       struct wbd_stage *stage)
{
	u64 pos = blk_rq_pos(rq) << SECTOR_SHIFT;
	struct req_iterator iter;
	struct bio_vec bv;

	rq_for_each_segment(bv, rq, iter) {
		void *data = bvec_kmap_local(&bv);
		u32 off, part;
		blk_status_t status = BLK_STS_OK;

		for (off = 0; off < bv.bv_len && !status; off += part) {
			part = min_t(u32, bv.bv_len - off,
				     PAGE_SIZE - offset_in_page(pos));
			status = wbd_stage_add(&dev->store, stage, pos,
					       data + off, part);
			pos += part;
		}
		kunmap_local(data);
		if (status)
			return status;
	}
	return BLK_STS_OK;
}

static void read_data(struct wbd_dev *dev, struct request *rq)
{
	u64 pos = blk_rq_pos(rq) << SECTOR_SHIFT;
	struct req_iterator iter;
	struct bio_vec bv;

	rq_for_each_segment(bv, rq, iter) {
		void *data = bvec_kmap_local(&bv);
		u32 off, part;

		for (off = 0; off < bv.bv_len; off += part) {
			part = min_t(u32, bv.bv_len - off,
				     PAGE_SIZE - offset_in_page(pos));
			wbd_store_read(&dev->store, pos, data + off, part);
			pos += part;
		}
		flush_dcache_page(bv.bv_page);
		kunmap_local(data);
	}
}

/* Called by blk-mq: the command is over, its data becomes visible. */
static void wbd_complete(struct request *rq)
{
	struct wbd_dev *dev = rq->q->queuedata;
	struct wbd_rq *wrq = blk_mq_rq_to_pdu(rq);
	struct wbd_cmd *cmd = &wrq->cmd;

	if (wrq->status) {
		wbd_stage_drop(&dev->store, &wrq->stage);
	} else {
		switch (cmd->op) {
		case WBD_READ:
			read_data(dev, rq);
			break;
		case WBD_FLUSH:
			if (!wbd_store_flush(&dev->store, wrq->flush_seq,
					     wrq->epoch))
				wrq->status = BLK_STS_IOERR;
			break;
		default:
			if (!wbd_store_install(&dev->store, &wrq->stage,
					       cmd->sector << SECTOR_SHIFT,
					       blk_rq_bytes(rq), cmd->durable,
					       cmd->log_end))
				wrq->status = BLK_STS_IOERR;
		}
	}
	blk_mq_end_request(rq, wrq->status);
}

/* ---- into the model ------------------------------------------------------ */

static bool translate(const struct request *rq, struct wbd_cmd *cmd)
{
	switch (req_op(rq)) {
	case REQ_OP_READ:
		cmd->op = WBD_READ;
		break;
	case REQ_OP_WRITE:
		cmd->op = WBD_WRITE;
		break;
	case REQ_OP_FLUSH:
		cmd->op = WBD_FLUSH;
		break;
	case REQ_OP_DISCARD:
		cmd->op = WBD_DISCARD;
		break;
	case REQ_OP_WRITE_ZEROES:
		cmd->op = WBD_ZEROES;
		break;
	default:
		return false;
	}
	cmd->fua = rq->cmd_flags & REQ_FUA;
	cmd->sector = cmd->op == WBD_FLUSH ? 0 : blk_rq_pos(rq);
	/* What moves over the link: nothing for the others. */
	cmd->bytes = cmd->op == WBD_READ || cmd->op == WBD_WRITE ?
		     blk_rq_bytes(rq) : 0;
	return true;
}

static blk_status_t stage(struct wbd_dev *dev, struct request *rq,
			  struct wbd_rq *wrq)
{
	blk_status_t status = BLK_STS_OK;

	wbd_stage_begin(&dev->store, &wrq->stage);
	if (wrq->cmd.op == WBD_WRITE)
		status = stage_data(dev, rq, &wrq->stage);
	else if (wrq->cmd.op == WBD_ZEROES)
		status = wbd_stage_edges(&dev->store, &wrq->stage,
					 blk_rq_pos(rq) << SECTOR_SHIFT,
					 blk_rq_bytes(rq));
	if (!status)
		return BLK_STS_OK;
	wbd_stage_drop(&dev->store, &wrq->stage);
	if (status == BLK_STS_NOSPC) {
		if (!xchg(&dev->said_full, true))
			pr_warn("%s: store is full: raise store_mib (%u) or discard\n",
				wbd_name(dev), dev->cfg.store_mib);
	} else if (++wrq->tries > MAX_TRIES) {
		pr_warn_ratelimited("%s: out of memory for data\n", wbd_name(dev));
		status = BLK_STS_IOERR;
	}
	return status;
}

/* Put a started request into the model.  Returns false if it is over already. */
static bool enter(struct wbd_dev *dev, struct wbd_rq *wrq)
{
	struct wbd_cmd *cmd = &wrq->cmd;
	u64 now = ktime_get_ns();

	if (dev->dead) {
		wrq->status = BLK_STS_IOERR;
		return false;
	}
	switch (wbd_fault_match(dev, cmd, blk_rq_bytes(blk_mq_rq_from_pdu(wrq)))) {
	case WBD_FAULT_NONE:
		break;
	case WBD_FAULT_EIO:
		dev->stats.errors_injected++;
		wrq->status = BLK_STS_IOERR;
		break;
	case WBD_FAULT_TIMEOUT:
		dev->stats.errors_injected++;
		if (dev->leaving)
			wrq->status = BLK_STS_IOERR;
		else
			wrq->state = WBD_RQ_HUNG;
		break;
	}
	wrq->flush_seq = wbd_store_seq(&dev->store);
	wrq->epoch = dev->store.epoch;
	trace_wbdisk_queue(dev->disk, cmd, dev->stats.inflight_write_bytes);
	wbd_stats_queue(dev, cmd);
	list_add_tail(&wrq->active, &dev->active);
	if (wrq->state == WBD_RQ_HUNG) {
		cmd->arrived = now;
		return true;
	}
	wbd_sim_queue(&dev->sim, cmd, now);
	arm(dev);
	return true;
}

static blk_status_t wbd_queue_rq(struct blk_mq_hw_ctx *hctx,
				 const struct blk_mq_queue_data *bd)
{
	struct request *rq = bd->rq;
	struct wbd_dev *dev = hctx->queue->queuedata;
	struct wbd_rq *wrq = blk_mq_rq_to_pdu(rq);
	blk_status_t status;
	unsigned long flags;
	bool entered;

	if (!(rq->rq_flags & RQF_DONTPREP)) {
		memset(wrq, 0, sizeof(*wrq));
		rq->rq_flags |= RQF_DONTPREP;
	}
	if (!translate(rq, &wrq->cmd))
		return BLK_STS_NOTSUPP;
	status = stage(dev, rq, wrq);
	if (status == BLK_STS_RESOURCE)
		return status;
	wrq->status = status;
	wrq->state = WBD_RQ_ACTIVE;
	INIT_LIST_HEAD(&wrq->active);
	blk_mq_start_request(rq);

	spin_lock_irqsave(&dev->lock, flags);
	entered = enter(dev, wrq);
	spin_unlock_irqrestore(&dev->lock, flags);
	if (!entered)
		blk_mq_complete_request(rq);
	return BLK_STS_OK;
}

/* ---- out of order -------------------------------------------------------- */

/*
 * Only what was made to hang times out.  Anything else is still in the model,
 * behind a stall or a long queue, and comes back in time.
 */
static enum blk_eh_timer_return wbd_timeout(struct request *rq)
{
	struct wbd_dev *dev = rq->q->queuedata;
	struct wbd_rq *wrq = blk_mq_rq_to_pdu(rq);
	enum wbd_rq_state state;
	unsigned long flags;
	LIST_HEAD(done);

	spin_lock_irqsave(&dev->lock, flags);
	state = wrq->state;
	if (state == WBD_RQ_HUNG)
		leave(dev, wrq, BLK_STS_TIMEOUT, ktime_get_ns(), &done);
	spin_unlock_irqrestore(&dev->lock, flags);
	hand_over(&done);
	return state == WBD_RQ_ACTIVE ? BLK_EH_RESET_TIMER : BLK_EH_DONE;
}

/**
 * wbd_leave() - nothing may keep the disk from going
 * @dev: the disk, on
 *
 * Ends a stall and fails what was made to hang.
 */
void wbd_leave(struct wbd_dev *dev)
{
	struct wbd_rq *wrq, *next;
	unsigned long flags;
	LIST_HEAD(done);

	wbd_stall(dev, 0);
	spin_lock_irqsave(&dev->lock, flags);
	dev->leaving = true;
	list_for_each_entry_safe(wrq, next, &dev->active, active)
		if (wrq->state == WBD_RQ_HUNG)
			leave(dev, wrq, BLK_STS_IOERR, ktime_get_ns(), &done);
	spin_unlock_irqrestore(&dev->lock, flags);
	hand_over(&done);
}

/**
 * wbd_stall() - hold completions back
 * @dev: the disk, on
 * @ns: for this long from now on; 0 ends a stall
 *
 * The model goes on behind it: what completes meanwhile is due at its end.
 */
void wbd_stall(struct wbd_dev *dev, u64 ns)
{
	unsigned long flags;

	spin_lock_irqsave(&dev->lock, flags);
	dev->stall_until = ns ? ktime_get_ns() + ns : 0;
	/* Have the timer look again, be it earlier or later. */
	dev->armed = WBD_NEVER;
	arm(dev);
	spin_unlock_irqrestore(&dev->lock, flags);
}

/**
 * wbd_cut() - the power goes
 * @dev: the disk, on
 *
 * What is cached is lost but for cut_keep_ppm of its pages, commands inside and
 * all later ones fail, until the next wbd_power_on().
 */
void wbd_cut(struct wbd_dev *dev)
{
	struct wbd_rq *wrq, *next;
	unsigned long flags;
	LIST_HEAD(done);
	u64 now;

	spin_lock_irqsave(&dev->lock, flags);
	if (!dev->dead) {
		now = ktime_get_ns();
		wbd_sim_advance(&dev->sim, now);
		wbd_store_cut(&dev->store, dev->cfg.cut_keep_ppm,
			      wbd_sim_retired(&dev->sim));
		wbd_sim_reset(&dev->sim);
		dev->dead = true;
		dev->cuts++;
		list_for_each_entry_safe(wrq, next, &dev->active, active)
			leave(dev, wrq, BLK_STS_IOERR, now, &done);
	}
	spin_unlock_irqrestore(&dev->lock, flags);
	hand_over(&done);
}

const struct blk_mq_ops wbd_mq_ops = {
	.queue_rq = wbd_queue_rq,
	.complete = wbd_complete,
	.timeout = wbd_timeout,
};
