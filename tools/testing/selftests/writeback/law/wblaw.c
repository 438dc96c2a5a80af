// SPDX-License-Identifier: GPL-2.0
/*
 * A control law of writeback throttling in front of one of wbdisk's models, in
 * virtual time: the kernel's own files, compiled here, and a writer with an
 * endless backlog, Poisson readers (open loop, their latency counts from when
 * they are due) and an fsync-er around them.
 *
 * Each line of standard input is a case, words of name=value: numbers of the
 * disk as in wbdisk's configfs directory, and those of the load below. Each
 * gives a line of results.
 */
#include <math.h>
#include <stdio.h>

#include "wblaw.h"
#include "wbdisk_model.h"

#define MAX_READERS	64
#define MAX_STEPS	8
#define MAX_QUEUES	16
#define START_NS	(200 * NSEC_PER_MSEC)
/* As read-latency.sh: the readers' own start, and how much later the writer's is. */
#define READERS_NS	(2 * NSEC_PER_MSEC)
#define WRITER_NS	(400 * NSEC_PER_MSEC)
#define END_NS		(120 * NSEC_PER_SEC)

enum kind { READ_IO, WRITE_IO, SYNC_IO, FLUSH_IO, LAST_FLUSH };

struct io {
	struct wbd_cmd cmd;
	enum kind kind;
	u32 who;
	u32 queue;
	u64 due;
	u64 since;
	u64 asked;
	u64 issued;
	u64 stamp;
	struct io *next;
};

enum timer { T_READER, T_WINDOW, T_SEND, T_SYNC, T_STEP, T_START, T_WAIT, T_READ };

struct timer_event {
	u64 when;
	u64 order;
	enum timer what;
	u32 who;
	struct io *io;	/* of T_READ */
};

struct load {
	char law[16];
	u32 readers, iops, mib, syncs, host_ns, seed, idle_ms, open, limit_kib, io_kib;
	/* As read-latency.sh: so long the readers read, so much is written before. */
	u32 run_ms, layout_mib;
	/* So many reads of a million miss a cache, and take so much longer in the mean. */
	u32 miss_ppm, miss_ns;
	/* So many hit the disk's own: they wait for no write. */
	u32 hit_ppm;
	u32 hz;		/* ticks per second: a window is a whole number of them */
	/* link_mbps from a time on; time in ms */
	u32 step_ms[MAX_STEPS], step_mbps[MAX_STEPS], steps;
};

struct run {
	struct wblaw pub;
	const struct wblaw_ops *ops;
	struct wbd_config cfg;
	struct wbd_sim sim;
	struct load load;
	struct rnd_state rnd;

	struct timer_event *heap;
	u32 timers, room;
	u64 order;

	u32 tags[MAX_QUEUES];
	struct io *wait[MAX_QUEUES], **wait_tail[MAX_QUEUES];
	bool writer_waits;	/* for a tag */
	bool writer_sleeps;	/* for a completion to wake it */
	bool send_armed;
	bool wait_armed;
	struct io *spare;

	u64 start, end;		/* of the writer, of the readers with run_ms */
	bool layout;
	u64 left, pos, acked;
	bool over_writes;
	u64 over;

	u64 *lat;
	u32 lats, lat_room;
	u64 *due_lat;
	u32 due_lats, due_room;
	u64 *sync_lat;
	u32 sync_lats, sync_room;
	u64 sync_due;
	u64 due[MAX_READERS];
	u64 read_file;
	struct io *read_io;
};

static u32 rnd(struct run *r)
{
	return prandom_u32_state(&r->rnd);
}

static u64 rnd_exp(struct run *r, double mean_ns)
{
	return (u64)(-log(((double)rnd(r) + 1) / 4294967297.0) * mean_ns);
}

/* ---- timers ---------------------------------------------------------------- */

static bool before(const struct timer_event *a, const struct timer_event *b)
{
	return a->when != b->when ? a->when < b->when : a->order < b->order;
}

static void event(struct run *r, struct timer_event e)
{
	u32 i = r->timers++;

	e.order = r->order++;
	if (r->timers > r->room) {
		r->room = 2 * r->timers + 64;
		r->heap = realloc(r->heap, r->room * sizeof(*r->heap));
	}
	for (; i && before(&e, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
		r->heap[i] = r->heap[(i - 1) / 2];
	r->heap[i] = e;
}

static void timer(struct run *r, u64 when, enum timer what, u32 who)
{
	event(r, (struct timer_event){ .when = when, .what = what, .who = who });
}

static struct timer_event timer_pop(struct run *r)
{
	struct timer_event top = r->heap[0], e = r->heap[--r->timers];
	u32 i = 0, child;

	while ((child = 2 * i + 1) < r->timers) {
		if (child + 1 < r->timers && before(&r->heap[child + 1], &r->heap[child]))
			child++;
		if (!before(&r->heap[child], &e))
			break;
		r->heap[i] = r->heap[child];
		i = child;
	}
	r->heap[i] = e;
	return top;
}

/* ---- the way to the disk --------------------------------------------------- */

static struct io *new_io(struct run *r, enum kind what, u64 sector, u32 bytes)
{
	struct io *io = r->spare;

	if (io)
		r->spare = io->next;
	else
		io = malloc(sizeof(*io));
	memset(io, 0, sizeof(*io));
	io->kind = what;
	io->cmd.op = what == READ_IO ? WBD_READ :
		     what == FLUSH_IO || what == LAST_FLUSH ? WBD_FLUSH : WBD_WRITE;
	io->cmd.sector = sector;
	io->cmd.bytes = bytes;
	return io;
}

static void to_disk(struct run *r, struct io *io)
{
	r->tags[io->queue]--;
	io->issued = r->pub.now;
	if (io->kind == READ_IO && !r->pub.read_since) {
		r->pub.read_since = r->pub.now;
		r->read_io = io;
	}
	r->pub.tag_wait += r->pub.now - io->asked;
	if (io->kind == WRITE_IO && r->ops->sent)
		r->ops->sent(&r->pub, io->cmd.bytes, &io->stamp);
	if (io->kind == READ_IO && r->load.hit_ppm && rnd(r) % 1000000 < r->load.hit_ppm) {
		struct timer_event hit = {
			.when = r->pub.now + r->cfg.latency_ns, .what = T_READ, .io = io
		};

		event(r, hit);
		return;
	}
	wbd_sim_queue(&r->sim, &io->cmd, r->pub.now);
}

/* Returns false if it waits for a tag. */
static bool send(struct run *r, struct io *io)
{
	u32 q = io->queue;

	io->asked = r->pub.now;
	if (r->tags[q] && !r->wait[q]) {
		to_disk(r, io);
		return true;
	}
	*r->wait_tail[q] = io;
	r->wait_tail[q] = &io->next;
	io->next = NULL;
	return false;
}

static bool law_lets(struct run *r, u32 *bytes)
{
	struct wblaw *s = &r->pub;
	u64 room = r->ops->bytes ? r->ops->bytes(s) : ~0ULL;
	u64 max_io = r->ops->max_io ? r->ops->max_io(s) : ~0ULL;
	u64 n = min_t(u64, r->left, (u64)r->cfg.max_io_kib << 10);

	*bytes = min(n, max_io);
	if (r->writer_sleeps)
		return false;
	if (r->ops->requests && s->inflight && s->inflight >= r->ops->requests(s)) {
		r->writer_sleeps = true;
		return false;
	}
	if (!room || (s->inflight && s->inflight_bytes + *bytes > room))
		return false;
	if (r->ops->wait) {
		u64 ns = r->ops->wait(s, *bytes);

		if (ns && ns != U64_MAX && !r->wait_armed) {
			r->wait_armed = true;
			timer(r, s->now + ns, T_WAIT, 0);
		}
		return !ns;
	}
	return true;
}

static void writer(struct run *r)
{
	struct io *io;
	u32 bytes;

	if (r->pub.now < r->start)
		return;
	while (r->left && !r->writer_waits && law_lets(r, &bytes)) {
		io = new_io(r, WRITE_IO, r->pos >> 9, bytes);
		r->pos += bytes;
		r->left -= bytes;
		r->pub.inflight++;
		r->pub.inflight_bytes += bytes;
		if (!send(r, io))
			r->writer_waits = true;
	}
	/* For the law or for a tag: either way it might be given more. */
	r->pub.held = r->left;
}

static void writer_soon(struct run *r)
{
	if (r->send_armed || !r->left || r->pub.now < r->start)
		return;
	r->send_armed = true;
	timer(r, r->pub.now + r->load.host_ns, T_SEND, 0);
}

static void next_read(struct run *r, u32 who);

static void reader(struct run *r, u32 who)
{
	struct io *io = new_io(r, READ_IO, r->read_file + rnd(r) % (64 << 8) * 8, 4096);

	io->who = who;
	io->queue = who % (r->cfg.queues ?: 1);
	io->due = r->due[who];
	io->since = r->pub.now;
	r->pub.reads++;
	r->pub.last_read = r->pub.now;
	send(r, io);
	if (r->load.open)
		next_read(r, who);
}

static void next_read(struct run *r, u32 who)
{
	r->due[who] += rnd_exp(r, 1e9 / r->load.iops);
	if (r->end && r->due[who] >= r->end)
		return;
	timer(r, max(r->due[who], r->pub.now), T_READER, who);
}

static void sync_write(struct run *r)
{
	struct io *io = new_io(r, SYNC_IO, r->read_file + (1 << 20), 4096);

	io->due = r->sync_due;
	r->pub.last_read = r->pub.now;
	send(r, io);
}

static void sample(u64 **list, u32 *n, u32 *room, u64 value)
{
	if (*n == *room) {
		*room = 2 * *n + 1024;
		*list = realloc(*list, *room * sizeof(**list));
	}
	(*list)[(*n)++] = value;
}

static void flush(struct run *r, enum kind what, u64 due)
{
	struct io *io = new_io(r, what, 0, 0);

	io->due = due;
	send(r, io);
}

static void next_sync(struct run *r)
{
	r->sync_due += rnd_exp(r, 1e9 / r->load.syncs);
	timer(r, max(r->sync_due, r->pub.now), T_SYNC, 0);
}

/* Which reads are told of: those while it writes, or all of them. */
static bool counts(struct run *r, u64 when)
{
	return r->end || (when >= r->start && !r->over);
}

/* The readers' file is there: they begin, and then the writer. */
static void layout_done(struct run *r)
{
	u32 i;

	r->layout = false;
	r->pub.held = false;
	r->over_writes = false;
	r->start = r->pub.now + WRITER_NS;
	r->end = r->pub.now + READERS_NS + r->load.run_ms * NSEC_PER_MSEC;
	r->left = (u64)r->load.mib << 20;
	r->pos = (u64)r->cfg.capacity_mib / 2 << 20;
	for (i = 0; i < r->load.readers; i++) {
		r->due[i] = r->pub.now + READERS_NS;
		next_read(r, i);
	}
	timer(r, r->start, T_START, 0);
}

static void done(struct run *r, struct io *io)
{
	struct wblaw *s = &r->pub;
	u64 took = s->now - io->issued;
	u32 q = io->queue;

	r->tags[q]++;
	while (r->tags[q] && r->wait[q]) {
		struct io *next = r->wait[q];

		r->wait[q] = next->next;
		if (!r->wait[q])
			r->wait_tail[q] = &r->wait[q];
		to_disk(r, next);
		if (next->kind == WRITE_IO) {
			r->writer_waits = false;
			writer_soon(r);
		}
	}
	switch (io->kind) {
	case READ_IO:
		s->reads--;
		if (io == r->read_io) {
			r->read_io = NULL;
			s->read_since = 0;
		}
		s->last_read = s->now;
		if (counts(r, io->due))
			sample(&r->due_lat, &r->due_lats, &r->due_room, s->now - io->due);
		if (counts(r, io->since))
			sample(&r->lat, &r->lats, &r->lat_room, s->now - io->since);
		if (r->ops->read)
			r->ops->read(s, took);
		if (!r->load.open)
			next_read(r, io->who);
		break;
	case WRITE_IO:
		s->inflight--;
		s->inflight_bytes -= io->cmd.bytes;
		r->acked += io->cmd.bytes;
		if (r->ops->done)
			r->ops->done(s, io->cmd.bytes, io->issued, io->stamp);
		if (r->writer_sleeps && (!s->inflight || !r->ops->wake ||
					 r->ops->wake(s, s->inflight)))
			r->writer_sleeps = false;
		if (!r->left && !s->inflight && !r->over_writes) {
			r->over_writes = true;
			flush(r, LAST_FLUSH, 0);
		}
		break;
	case SYNC_IO:
		s->last_read = s->now;
		flush(r, FLUSH_IO, io->due);
		break;
	case FLUSH_IO:
		if (io->due >= r->start && !r->over)
			sample(&r->sync_lat, &r->sync_lats, &r->sync_room,
			       s->now - io->due);
		if (!r->load.open)
			next_sync(r);
		break;
	case LAST_FLUSH:
		if (r->layout)
			layout_done(r);
		else
			r->over = s->now;
		break;
	}
	io->next = r->spare;
	r->spare = io;
	if (!r->writer_sleeps)
		writer_soon(r);
}

/* By the disk: a read that misses takes longer. */
static void served(struct run *r, struct io *io)
{
	struct timer_event miss = { .what = T_READ, .io = io };

	if (io->kind != READ_IO || !r->load.miss_ppm ||
	    rnd(r) % 1000000 >= r->load.miss_ppm) {
		done(r, io);
		return;
	}
	miss.when = r->pub.now + rnd_exp(r, r->load.miss_ns);
	event(r, miss);
}

static void on_timer(struct run *r, struct timer_event e)
{
	struct wblaw *s = &r->pub;
	struct load *l = &r->load;
	u64 in, tick;

	switch (e.what) {
	case T_READER:
		reader(r, e.who);
		break;
	case T_WINDOW:
		in = r->ops->window(s);
		tick = NSEC_PER_SEC / l->hz;
		in = max_t(u64, in / tick, 1) * tick;
		if (r->writer_sleeps && r->ops->requests &&
		    s->inflight < r->ops->requests(s))
			r->writer_sleeps = false;
		writer(r);
		timer(r, s->now + in, T_WINDOW, 0);
		break;
	case T_WAIT:
		r->wait_armed = false;
		writer_soon(r);
		break;
	case T_SEND:
		r->send_armed = false;
		writer(r);
		break;
	case T_SYNC:
		sync_write(r);
		if (l->open)
			next_sync(r);
		break;
	case T_STEP:
		r->cfg.link_mbps = l->step_mbps[e.who];
		break;
	case T_START:
		writer(r);
		break;
	case T_READ:
		done(r, e.io);
		break;
	}
}

static void simulate(struct run *r)
{
	struct wblaw *s = &r->pub;

	while (!r->over || s->now < r->end) {
		u64 disk = wbd_sim_next(&r->sim);
		u64 next = r->timers ? r->heap[0].when : WBD_NEVER;
		struct wbd_cmd *cmd;

		s->now = min(disk, next);
		if (s->now > END_NS || s->now == WBD_NEVER)
			break;
		if (r->load.idle_ms && s->now > START_NS + r->load.idle_ms * NSEC_PER_MSEC)
			break;
		if (disk <= next) {
			wbd_sim_advance(&r->sim, s->now);
			while ((cmd = wbd_sim_pop(&r->sim)))
				served(r, container_of(cmd, struct io, cmd));
		} else {
			on_timer(r, timer_pop(r));
		}
	}
}

/* ---- cases and results ------------------------------------------------------ */

struct key {
	const char *name;
	size_t where;
};

#define CFG(x)	{ #x, offsetof(struct run, cfg.x) }
#define LOAD(x)	{ #x, offsetof(struct run, load.x) }
static const struct key keys[] = {
	CFG(link_mbps), CFG(link_duplex), CFG(latency_ns), CFG(latency_jitter_ns),
	CFG(command_ns), CFG(burst_mib), CFG(burst_mbps), CFG(slc_mib),
	CFG(t_prog_full_ns), CFG(capacity_mib), CFG(channels), CFG(dies_per_channel),
	CFG(channel_mbps), CFG(page_kib), CFG(prog_kib), CFG(t_read_ns), CFG(t_prog_ns),
	CFG(write_buffer_kib), CFG(rpm), CFG(seek_min_ns), CFG(seek_avg_ns),
	CFG(media_mbps_outer), CFG(media_mbps_inner), CFG(write_cache), CFG(fua),
	CFG(flush_drains), CFG(queues), CFG(queue_depth), CFG(max_io_kib),
	CFG(rotational), CFG(jitter_ppm),
	LOAD(readers), LOAD(iops), LOAD(mib), LOAD(syncs), LOAD(host_ns), LOAD(seed), LOAD(hz),
	LOAD(idle_ms), LOAD(open), LOAD(limit_kib), LOAD(io_kib), LOAD(run_ms), LOAD(layout_mib),
	LOAD(miss_ppm), LOAD(miss_ns), LOAD(hit_ppm),
};

static const struct wblaw_ops *const laws[] = {
	&wblaw_none, &wblaw_requests, &wblaw_share, &wblaw_kyber, &wblaw_law,
	&wblaw_vrate, &wblaw_fixed,
};

static void fail(const char *what, const char *word)
{
	fprintf(stderr, "wblaw: %s: %s\n", what, word);
	exit(2);
}

static void set(struct run *r, const char *word)
{
	const char *value = strchr(word, '=');
	struct load *l = &r->load;
	size_t n, i;

	if (!value)
		fail("not name=value", word);
	n = value++ - word;
	if (!strncmp(word, "disk=", 5)) {
		if (wbd_config_load(&r->cfg, value))
			fail("no such disk", value);
		return;
	}
	if (!strncmp(word, "law=", 4)) {
		for (i = 0; i < ARRAY_SIZE(laws); i++)
			if (!strcmp(laws[i]->name, value))
				r->ops = laws[i];
		if (!r->ops)
			fail("no such law", value);
		return;
	}
	if (!strncmp(word, "step=", 5)) {
		if (l->steps == MAX_STEPS ||
		    sscanf(value, "%u:%u", &l->step_ms[l->steps], &l->step_mbps[l->steps]) != 2)
			fail("not step=ms:mbps", word);
		l->steps++;
		return;
	}
	for (i = 0; i < ARRAY_SIZE(keys); i++)
		if (strlen(keys[i].name) == n && !strncmp(word, keys[i].name, n)) {
			*(u32 *)((char *)r + keys[i].where) = strtoul(value, NULL, 0);
			return;
		}
	fail("no such name", word);
}

static int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static double at(const u64 *list, u32 n, double q)
{
	u32 i = n * q;

	return n ? list[min(i, n - 1)] / 1e6 : 0;
}

static void one_case(char *line)
{
	static const char delimiters[] = { ' ', '\n', 0 };
	struct run *r = calloc(1, sizeof(*r));
	char *save, *word;
	u32 i;

	r->load = (struct load){
		.readers = 4, .iops = 1000, .mib = 1024, .host_ns = 5000, .seed = 1, .hz = 1000,
	};
	wbd_config_load(&r->cfg, "fifo");
	for (word = strtok_r(line, delimiters, &save); word;
	     word = strtok_r(NULL, delimiters, &save))
		set(r, word);
	if (!r->ops)
		fail("no law=", "");
	/* An arm has latency of its own: there the kernel counts requests. */
	if (r->ops == &wblaw_law && r->cfg.rotational)
		r->ops = &wblaw_requests;
	r->cfg.queues = clamp(r->cfg.queues ?: 1U, 1U, (u32)MAX_QUEUES);
	if (!r->load.hz)
		fail("no ticks", "hz=0");
	r->load.readers = min_t(u32, r->load.readers, MAX_READERS);
	r->cfg.seed = r->load.seed;
	if (wbd_config_problem(&r->cfg))
		fail("disk", wbd_config_problem(&r->cfg));
	if (wbd_sim_init(&r->sim, &r->cfg))
		fail("out of memory", "");
	prandom_seed_state(&r->rnd, r->load.seed * 7919ULL + 1);
	for (i = 0; i < 16; i++)
		rnd(r);
	for (i = 0; i < r->cfg.queues; i++) {
		r->tags[i] = r->cfg.queue_depth;
		r->wait_tail[i] = &r->wait[i];
	}
	r->pub.tags = r->cfg.queue_depth;
	r->pub.rotational = r->cfg.rotational;
	r->pub.write_cache = r->cfg.write_cache;
	r->read_file = (u64)r->cfg.capacity_mib / 4 << 11;
	r->pos = (u64)r->cfg.capacity_mib / 2 << 20;
	r->left = r->load.idle_ms ? 0 : (u64)r->load.mib << 20;
	r->start = START_NS;
	if (r->load.run_ms) {
		r->layout = true;
		r->start = 0;
		r->left = (u64)r->load.layout_mib << 20;
		r->pos = r->read_file << 9;
	}
	r->pub.limit_kib = r->load.limit_kib;
	r->pub.io_kib = r->load.io_kib;
	if (r->ops->setup)
		r->ops->setup(&r->pub);
	for (i = 0; i < r->load.readers && !r->layout; i++)
		next_read(r, i);
	if (r->load.syncs) {
		r->sync_due = rnd_exp(r, 1e9 / r->load.syncs);
		timer(r, r->sync_due, T_SYNC, 0);
	}
	for (i = 0; i < r->load.steps; i++)
		timer(r, r->start + r->load.step_ms[i] * NSEC_PER_MSEC, T_STEP, i);
	if (!r->load.idle_ms)
		timer(r, r->start, T_START, 0);
	if (r->ops->window)
		timer(r, r->start, T_WINDOW, 0);
	simulate(r);
	if (!r->over)
		r->over = r->pub.now;
	qsort(r->lat, r->lats, sizeof(u64), compare);
	qsort(r->due_lat, r->due_lats, sizeof(u64), compare);
	qsort(r->sync_lat, r->sync_lats, sizeof(u64), compare);
	printf("drain_s=%.6f reads=%u p50=%.4f p90=%.4f p99=%.4f p9995=%.4f max=%.4f ",
	       (r->over - r->start) / 1e9, r->lats, at(r->lat, r->lats, .5),
	       at(r->lat, r->lats, .9), at(r->lat, r->lats, .99), at(r->lat, r->lats, .9995),
	       at(r->lat, r->lats, 1));
	printf("due_p9995=%.4f syncs=%u sync_p99=%.4f\n", at(r->due_lat, r->due_lats, .9995),
	       r->sync_lats, at(r->sync_lat, r->sync_lats, .99));
	fflush(stdout);
	wbd_sim_destroy(&r->sim);
	free(r->lat);
	free(r->due_lat);
	free(r->sync_lat);
	free(r->heap);
	free(r->pub.priv);
	free(r);
}

int main(void)
{
	char line[4096];

	while (fgets(line, sizeof(line), stdin))
		one_case(line);
	return 0;
}
