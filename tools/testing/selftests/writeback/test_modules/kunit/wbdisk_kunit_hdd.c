// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of the hdd model: 100 rotations per second, 100 MB/s everywhere,
 * so that a track holds 10^6 bytes and a byte passes in 10 ns.
 */
#include "wbdisk_kunit.h"

#define LATENCY		1000
#define REV_NS		10000000ULL
#define MEDIA_NS(bytes)	((u64)(bytes) * 10)
#define LINK_NS(bytes)	((u64)(bytes) * 2)
#define SEEK_MIN	1000000
/* Off the arm's place, on its track: 100000 bytes pass in a millisecond. */
#define NEAR		(200 * 512ULL)
#define FAR		((u64)SZ_512M)

static int hdd_init(struct kunit *test)
{
	int err = wbd_test_init(test);
	struct wbd_test *t = test->priv;

	if (err)
		return err;
	t->cfg.model = WBD_MODEL_HDD;
	return 0;
}

static void rotation(struct kunit *test)
{
	struct wbd_cmd *a, *b;

	wbd_test_power(test);
	/* On the track of the arm: no seek, the sector passes at its angle. */
	a = wbd_send(test, WBD_READ, NEAR, SZ_4K, 0);
	wbd_run(test);
	EXPECT_END(test, a, MEDIA_NS(NEAR) + MEDIA_NS(SZ_4K) + LATENCY);
	/* Missed: it comes round in the next rotation. */
	b = wbd_send(test, WBD_WRITE, NEAR, SZ_4K, 3 * NSEC_PER_MSEC);
	wbd_run(test);
	EXPECT_END(test, b, REV_NS + MEDIA_NS(NEAR) + MEDIA_NS(SZ_4K) + LATENCY);
}

static void sequential_loses_no_rotation(struct kunit *test)
{
	struct wbd_cmd *cmd = NULL;
	int i;

	wbd_test_power(test);
	for (i = 0; i < 8; i++)
		cmd = wbd_send(test, WBD_WRITE, i * SZ_1M, SZ_1M, 0);
	wbd_run(test);
	EXPECT_END(test, cmd, MEDIA_NS(8 * SZ_1M) + LATENCY);
}

/* Whole rotations come on top of the seek, so allow for one. */
static void seek_grows_with_distance(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	u64 stroke = (u64)(t->cfg.seek_avg_ns - SEEK_MIN) * 15 / 8 + SEEK_MIN;
	struct wbd_cmd *cmd;
	u64 ns;

	wbd_test_power(test);
	cmd = wbd_send(test, WBD_READ, (1023ULL << 20), SZ_4K, 0);
	wbd_run(test);
	ns = wbd_end(cmd) - LATENCY - MEDIA_NS(SZ_4K);
	KUNIT_EXPECT_GE(test, ns, stroke - stroke / 50);
	KUNIT_EXPECT_LT(test, ns, stroke + REV_NS);

	wbd_sim_reset(&t->sim);
	cmd = wbd_send(test, WBD_READ, 256ULL << 20, SZ_4K, NSEC_PER_SEC);
	wbd_run(test);
	ns = wbd_end(cmd) - NSEC_PER_SEC - LATENCY - MEDIA_NS(SZ_4K);
	/* A quarter of the way: half of the span. */
	stroke = SEEK_MIN + (stroke - SEEK_MIN) / 2;
	KUNIT_EXPECT_GE(test, ns, stroke - stroke / 50);
	KUNIT_EXPECT_LT(test, ns, stroke + REV_NS);
}

static void nearest_goes_first(struct kunit *test)
{
	struct wbd_cmd *busy, *far, *near;

	wbd_test_power(test);
	busy = wbd_send(test, WBD_WRITE, 0, SZ_4K, 0);
	far = wbd_send(test, WBD_READ, FAR, SZ_4K, 10);
	near = wbd_send(test, WBD_READ, NEAR, SZ_4K, 20);
	wbd_run(test);
	KUNIT_EXPECT_LT(test, wbd_end(busy), wbd_end(near));
	EXPECT_END(test, near, MEDIA_NS(NEAR) + MEDIA_NS(SZ_4K) + LATENCY);
	KUNIT_EXPECT_LT(test, wbd_end(near), wbd_end(far));
}

/* Commands nearby keep coming; the one far away must not wait for ever. */
static void old_goes_before_near(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *far, *last = NULL;
	int i;

	t->cfg.age_limit_ms = 100;
	wbd_test_power(test);
	wbd_send(test, WBD_WRITE, 0, SZ_1M, 0);
	far = wbd_send(test, WBD_READ, FAR, SZ_4K, 0);
	for (i = 1; i < 40; i++)
		last = wbd_send(test, WBD_WRITE, i * SZ_1M, SZ_1M, i * 1000);
	wbd_run(test);
	KUNIT_EXPECT_GT(test, wbd_end(far), 100 * NSEC_PER_MSEC);
	KUNIT_EXPECT_LT(test, wbd_end(far), 150 * NSEC_PER_MSEC);
	KUNIT_EXPECT_GT(test, wbd_end(last), wbd_end(far));
}

static void idle_arm_reads_on(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd;
	u64 now = 50 * NSEC_PER_MSEC;

	t->cfg.readahead_kib = 1024;
	wbd_test_power(test);
	wbd_send(test, WBD_READ, 0, SZ_4K, 0);
	wbd_run(test);
	cmd = wbd_send(test, WBD_READ, SZ_4K, SZ_4K, now);
	wbd_run(test);
	EXPECT_END(test, cmd, now + LINK_NS(SZ_4K) + LATENCY);
	/* Not so a write, which has to wait for its place. */
	cmd = wbd_send(test, WBD_WRITE, SZ_8K, SZ_4K, 2 * now);
	wbd_run(test);
	EXPECT_END(test, cmd, 2 * now + MEDIA_NS(SZ_8K + SZ_4K) + LATENCY);
}

static void cache_acknowledges_and_flush_waits(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *write, *flush;
	u64 ack = LINK_NS(SZ_4K) + LATENCY;

	t->cfg.write_cache = 1;
	wbd_test_power(test);
	write = wbd_send(test, WBD_WRITE, NEAR, SZ_4K, 0);
	flush = wbd_send(test, WBD_FLUSH, 0, 0, ack);
	wbd_run(test);
	EXPECT_END(test, write, ack);
	KUNIT_EXPECT_FALSE(test, write->durable);
	EXPECT_END(test, flush, MEDIA_NS(NEAR + SZ_4K) + LATENCY);
	KUNIT_EXPECT_GE(test, wbd_sim_retired(&t->sim), write->log_end);
}

static void reads_go_before_the_cache(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *write, *read;

	t->cfg.write_cache = 1;
	t->cfg.lazy_cache = 1;
	wbd_test_power(test);
	write = wbd_send(test, WBD_WRITE, 0, SZ_4K, 0);
	read = wbd_send(test, WBD_READ, FAR, SZ_4K, NSEC_PER_MSEC);
	wbd_run(test);
	KUNIT_EXPECT_LT(test, wbd_end(write), NSEC_PER_MSEC);
	KUNIT_EXPECT_GT(test, wbd_end(read), NSEC_PER_MSEC);
	KUNIT_EXPECT_LT(test, wbd_sim_retired(&t->sim), write->log_end);
}

/* 128 KiB of cache: the third write waits until the arm wrote the first. */
static void full_cache_pushes_back(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *a, *b, *c;

	t->cfg.write_cache = 1;
	wbd_test_power(test);
	a = wbd_send(test, WBD_WRITE, FAR, SZ_64K, 0);
	b = wbd_send(test, WBD_WRITE, FAR + SZ_1M, SZ_64K, 0);
	c = wbd_send(test, WBD_WRITE, FAR + SZ_2M, SZ_64K, 0);
	wbd_run(test);
	EXPECT_END(test, a, LINK_NS(SZ_64K) + LATENCY);
	EXPECT_END(test, b, 2 * LINK_NS(SZ_64K) + LATENCY);
	KUNIT_EXPECT_GT(test, wbd_end(c), MEDIA_NS(SZ_64K) + SEEK_MIN);
}

static struct kunit_case wbd_hdd_cases[] = {
	KUNIT_CASE(rotation),
	KUNIT_CASE(sequential_loses_no_rotation),
	KUNIT_CASE(seek_grows_with_distance),
	KUNIT_CASE(nearest_goes_first),
	KUNIT_CASE(old_goes_before_near),
	KUNIT_CASE(idle_arm_reads_on),
	KUNIT_CASE(cache_acknowledges_and_flush_waits),
	KUNIT_CASE(reads_go_before_the_cache),
	KUNIT_CASE(full_cache_pushes_back),
	{}
};

struct kunit_suite wbd_hdd_suite = {
	.name = "wbdisk-hdd",
	.init = hdd_init,
	.exit = wbd_test_exit,
	.test_cases = wbd_hdd_cases,
};
