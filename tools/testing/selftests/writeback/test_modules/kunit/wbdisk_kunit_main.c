// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of wbdisk: the fixture, the link and the fifo model. */
#include <linux/module.h>

#include "wbdisk_compat.h"
#include "wbdisk_kunit.h"

#define LINK_MBPS	500	/* 2 ns per byte */
#define LINK_NS(bytes)	((u64)(bytes) * 2)
#define LATENCY		1000

int wbd_test_init(struct kunit *test)
{
	struct wbd_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);

	if (!t)
		return -ENOMEM;
	t->cfg = (struct wbd_config){
		.model = WBD_MODEL_FIFO,
		.capacity_mib = 1024,
		.link_mbps = LINK_MBPS,
		.latency_ns = LATENCY,
		.channels = 2, .dies_per_channel = 2, .channel_mbps = 1000,
		.page_kib = 16, .prog_kib = 32,
		.t_read_ns = 50000, .t_prog_ns = 500000,
		.write_buffer_kib = 128,
		.rpm = 6000, .seek_min_ns = 1000000, .seek_avg_ns = 9000000,
		.media_mbps_outer = 100, .media_mbps_inner = 100,
		.age_limit_ms = 1000,
		.queues = 1, .queue_depth = 32, .max_io_kib = 1280,
		.seed = 1,
	};
	test->priv = t;
	return 0;
}

void wbd_test_exit(struct kunit *test)
{
	struct wbd_test *t = test->priv;

	if (t && t->sim.ops)
		wbd_sim_destroy(&t->sim);
}

void wbd_test_power(struct kunit *test)
{
	struct wbd_test *t = test->priv;

	KUNIT_ASSERT_EQ(test, wbd_sim_init(&t->sim, &t->cfg), 0);
}

struct wbd_cmd *wbd_send(struct kunit *test, enum wbd_op op, u64 pos, u32 bytes,
			 u64 now)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd = &t->cmd[t->used++];

	if (t->used > KUNIT_CMDS)
		KUNIT_FAIL_AND_ABORT(test, "more than %d commands", KUNIT_CMDS);
	cmd->op = op;
	cmd->sector = pos >> 9;
	cmd->bytes = bytes;
	wbd_sim_queue(&t->sim, cmd, now);
	return cmd;
}

/* Let all commands complete, waking up only when the model asks to. */
void wbd_run(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	u64 next;

	while ((next = wbd_sim_next(&t->sim)) != WBD_NEVER) {
		wbd_sim_advance(&t->sim, max(next, t->sim.now));
		while (wbd_sim_pop(&t->sim))
			;
	}
	KUNIT_EXPECT_EQ(test, t->sim.inflight, 0);
}

static void fifo_alone(struct kunit *test)
{
	struct wbd_cmd *read, *flush;

	wbd_test_power(test);
	read = wbd_send(test, WBD_READ, 0, SZ_4K, 100);
	wbd_run(test);
	EXPECT_END(test, read, 100 + LINK_NS(SZ_4K) + LATENCY);
	flush = wbd_send(test, WBD_FLUSH, 0, 0, 1000000);
	wbd_run(test);
	EXPECT_END(test, flush, 1000000 + LATENCY);
}

static void fifo_read_waits_for_writes(struct kunit *test)
{
	struct wbd_cmd *first = NULL, *read;
	u64 bytes = SZ_1M + SZ_256K;
	int i;

	wbd_test_power(test);
	for (i = 0; i < 32; i++) {
		struct wbd_cmd *cmd = wbd_send(test, WBD_WRITE, i * bytes, bytes, 0);

		first = first ?: cmd;
	}
	read = wbd_send(test, WBD_READ, SZ_1G - SZ_4K, SZ_4K, 5000);
	wbd_run(test);
	EXPECT_END(test, first, LINK_NS(bytes) + LATENCY);
	EXPECT_END(test, read, LINK_NS(32 * bytes + SZ_4K) + LATENCY);
}

static void fifo_idle_link_starts_at_once(struct kunit *test)
{
	struct wbd_cmd *a, *b;

	wbd_test_power(test);
	a = wbd_send(test, WBD_WRITE, 0, SZ_4K, 0);
	/* The link is free again, the first command has not completed. */
	b = wbd_send(test, WBD_WRITE, 0, SZ_4K, LINK_NS(SZ_4K) + 1);
	wbd_run(test);
	EXPECT_END(test, a, LINK_NS(SZ_4K) + LATENCY);
	EXPECT_END(test, b, 2 * LINK_NS(SZ_4K) + 1 + LATENCY);
}

static void link_change_spares_the_running_transfer(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *a, *b;

	wbd_test_power(test);
	a = wbd_send(test, WBD_WRITE, 0, SZ_1M, 0);
	b = wbd_send(test, WBD_WRITE, SZ_1M, SZ_1M, 0);
	wbd_sim_advance(&t->sim, LINK_NS(SZ_1M) / 2);
	t->cfg.link_mbps = LINK_MBPS / 10;
	wbd_run(test);
	EXPECT_END(test, a, LINK_NS(SZ_1M) + LATENCY);
	EXPECT_END(test, b, 11 * LINK_NS(SZ_1M) + LATENCY);
}

static void link_duplex_separates_reads(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *write, *read;

	t->cfg.link_duplex = 1;
	wbd_test_power(test);
	write = wbd_send(test, WBD_WRITE, 0, SZ_1M, 0);
	read = wbd_send(test, WBD_READ, SZ_1M, SZ_4K, 0);
	wbd_run(test);
	EXPECT_END(test, write, LINK_NS(SZ_1M) + LATENCY);
	EXPECT_END(test, read, LINK_NS(SZ_4K) + LATENCY);
}

/* A timer that is late must not change any time in the model. */
static void late_look_changes_nothing(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *a, *b;

	wbd_test_power(test);
	a = wbd_send(test, WBD_WRITE, 0, SZ_4K, 0);
	b = wbd_send(test, WBD_READ, SZ_1M, SZ_4K, 10);
	wbd_sim_advance(&t->sim, NSEC_PER_SEC);
	KUNIT_EXPECT_PTR_EQ(test, wbd_sim_pop(&t->sim), a);
	KUNIT_EXPECT_PTR_EQ(test, wbd_sim_pop(&t->sim), b);
	EXPECT_END(test, b, 2 * LINK_NS(SZ_4K) + LATENCY);
}

static void draining_flush_is_alone(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *write, *flush, *read;
	u64 first = LINK_NS(SZ_1M) + LATENCY;

	t->cfg.flush_drains = 1;
	wbd_test_power(test);
	write = wbd_send(test, WBD_WRITE, 0, SZ_1M, 0);
	flush = wbd_send(test, WBD_FLUSH, 0, 0, 10);
	read = wbd_send(test, WBD_READ, 0, SZ_4K, 20);
	wbd_run(test);
	EXPECT_END(test, write, first);
	EXPECT_END(test, flush, first + LATENCY);
	EXPECT_END(test, read, first + LATENCY + LINK_NS(SZ_4K) + LATENCY);
}

static void reset_forgets(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd;

	wbd_test_power(test);
	wbd_send(test, WBD_WRITE, 0, SZ_1M, 0);
	wbd_send(test, WBD_WRITE, 0, SZ_1M, 0);
	wbd_sim_reset(&t->sim);
	KUNIT_EXPECT_EQ(test, wbd_sim_next(&t->sim), WBD_NEVER);
	cmd = wbd_send(test, WBD_READ, 0, SZ_4K, 1000);
	wbd_run(test);
	EXPECT_END(test, cmd, 1000 + LINK_NS(SZ_4K) + LATENCY);
}

static u64 one_jittered(struct kunit *test, u32 seed)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd;

	t->cfg.seed = seed;
	wbd_test_power(test);
	cmd = wbd_send(test, WBD_WRITE, 0, SZ_1M, 0);
	wbd_run(test);
	wbd_sim_destroy(&t->sim);
	t->sim.ops = NULL;
	return wbd_end(cmd) - LATENCY;
}

static void jitter_is_bounded_and_seeded(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	u64 exact = LINK_NS(SZ_1M), span = div_u64(exact, 10);
	int i, differ = 0;

	KUNIT_EXPECT_EQ(test, one_jittered(test, 1), exact);
	t->cfg.jitter_ppm = 100000;
	for (i = 0; i < 10; i++) {
		u64 ns = one_jittered(test, i);

		KUNIT_EXPECT_GE(test, ns, exact - span);
		KUNIT_EXPECT_LE(test, ns, exact + span);
		KUNIT_EXPECT_EQ(test, ns, one_jittered(test, i));
		differ += ns != exact;
	}
	KUNIT_EXPECT_GE(test, differ, 9);
}

static struct kunit_case wbd_fifo_cases[] = {
	KUNIT_CASE(fifo_alone),
	KUNIT_CASE(fifo_read_waits_for_writes),
	KUNIT_CASE(fifo_idle_link_starts_at_once),
	KUNIT_CASE(link_change_spares_the_running_transfer),
	KUNIT_CASE(link_duplex_separates_reads),
	KUNIT_CASE(late_look_changes_nothing),
	KUNIT_CASE(draining_flush_is_alone),
	KUNIT_CASE(reset_forgets),
	KUNIT_CASE(jitter_is_bounded_and_seeded),
	{}
};

static struct kunit_suite wbd_fifo_suite = {
	.name = "wbdisk-fifo",
	.init = wbd_test_init,
	.exit = wbd_test_exit,
	.test_cases = wbd_fifo_cases,
};

kunit_test_suites(&wbd_fifo_suite, &wbd_flash_suite, &wbd_hdd_suite,
		  &wbd_store_suite);

MODULE_DESCRIPTION("KUnit tests of wbdisk");
MODULE_IMPORT_NS(WBD_KUNIT_NS);
MODULE_LICENSE("GPL");
