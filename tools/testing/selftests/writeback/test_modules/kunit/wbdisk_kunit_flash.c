// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of the ssd model.  Four dies on two channels; a page of 16 KiB
 * and a program of 32 KiB, so that unit 0 of the log and page 0 share die 0.
 */
#include "wbdisk_kunit.h"

#define LINK_NS(bytes)	((u64)(bytes) * 2)
#define CHAN_NS(bytes)	((u64)(bytes))
#define LATENCY		1000
#define T_READ		50000
#define T_PROG		500000
#define UNIT		SZ_32K
#define PAGE_NR(n)	((u64)(n) * SZ_16K)
#define READ_NS		(T_READ + CHAN_NS(SZ_4K) + LINK_NS(SZ_4K) + LATENCY)
#define UNIT_NS		(CHAN_NS(UNIT) + T_PROG)

static int flash_init(struct kunit *test)
{
	int err = wbd_test_init(test);
	struct wbd_test *t = test->priv;

	if (err)
		return err;
	t->cfg.model = WBD_MODEL_SSD;
	t->cfg.write_cache = 1;
	return 0;
}

static void read_idle(struct kunit *test)
{
	struct wbd_cmd *cmd;

	wbd_test_power(test);
	cmd = wbd_send(test, WBD_READ, 0, SZ_4K, 0);
	wbd_run(test);
	EXPECT_END(test, cmd, READ_NS);
}

static void reads_on_other_dies_overlap(struct kunit *test)
{
	struct wbd_cmd *a, *b, *c;

	wbd_test_power(test);
	a = wbd_send(test, WBD_READ, PAGE_NR(0), SZ_4K, 0);
	b = wbd_send(test, WBD_READ, PAGE_NR(1), SZ_4K, 0);
	c = wbd_send(test, WBD_READ, PAGE_NR(4), SZ_4K, 0);
	wbd_run(test);
	EXPECT_END(test, a, READ_NS);
	/* Its own die and channel, then behind the first on the link. */
	EXPECT_END(test, b, READ_NS + LINK_NS(SZ_4K));
	/* The die of the first. */
	EXPECT_END(test, c, READ_NS + T_READ);
}

static void large_read_streams(struct kunit *test)
{
	struct wbd_cmd *cmd;

	wbd_test_power(test);
	cmd = wbd_send(test, WBD_READ, 0, SZ_64K, 0);
	wbd_run(test);
	/* Four dies at once; the link starts with the first page. */
	EXPECT_END(test, cmd, T_READ + CHAN_NS(SZ_16K) + LINK_NS(SZ_64K) + LATENCY);
}

static void write_is_acknowledged_from_the_buffer(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd;

	wbd_test_power(test);
	cmd = wbd_send(test, WBD_WRITE, 0, UNIT, 0);
	wbd_run(test);
	EXPECT_END(test, cmd, LINK_NS(UNIT) + LATENCY);
	KUNIT_EXPECT_FALSE(test, cmd->durable);
	KUNIT_EXPECT_LT(test, wbd_sim_retired(&t->sim), cmd->log_end);
	wbd_sim_advance(&t->sim, LINK_NS(UNIT) + UNIT_NS);
	KUNIT_EXPECT_GE(test, wbd_sim_retired(&t->sim), cmd->log_end);
}

static void read_waits_behind_program(struct kunit *test)
{
	struct wbd_cmd *same, *other;
	u64 now = LINK_NS(UNIT) + LATENCY;

	wbd_test_power(test);
	wbd_send(test, WBD_WRITE, 0, UNIT, 0);
	same = wbd_send(test, WBD_READ, PAGE_NR(0), SZ_4K, now);
	other = wbd_send(test, WBD_READ, PAGE_NR(1), SZ_4K, now);
	wbd_run(test);
	EXPECT_END(test, same, LINK_NS(UNIT) + UNIT_NS + READ_NS);
	EXPECT_END(test, other, now + READ_NS);
}

/* Unit 2 goes to another die on the channel of unit 0 and page 0. */
static void read_that_waits_for_its_die_leaves_the_channel(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *last;
	int i;

	wbd_test_power(test);
	for (i = 0; i < 4; i++)
		t->cmd[i].fua = true;
	wbd_send(test, WBD_WRITE, 0, UNIT, 0);
	wbd_send(test, WBD_READ, PAGE_NR(0), SZ_4K, LINK_NS(UNIT));
	wbd_send(test, WBD_WRITE, UNIT, UNIT, LINK_NS(UNIT));
	last = wbd_send(test, WBD_WRITE, 2 * UNIT, UNIT, LINK_NS(UNIT));
	wbd_run(test);
	EXPECT_END(test, last, 3 * LINK_NS(UNIT) + UNIT_NS + LATENCY);
}

/* Page 2 is on another die of the channel that the read before would have had. */
static void reset_forgets_a_read_that_was_sensed(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd;
	u64 now = LINK_NS(UNIT) + LATENCY;

	wbd_test_power(test);
	wbd_send(test, WBD_WRITE, 0, UNIT, 0);
	wbd_send(test, WBD_READ, PAGE_NR(0), SZ_4K, now);
	wbd_sim_advance(&t->sim, now);
	wbd_sim_reset(&t->sim);
	cmd = wbd_send(test, WBD_READ, PAGE_NR(2), SZ_4K, now);
	wbd_run(test);
	EXPECT_END(test, cmd, now + READ_NS);
}

static void without_cache_write_waits_for_program(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd;

	t->cfg.write_cache = 0;
	wbd_test_power(test);
	cmd = wbd_send(test, WBD_WRITE, 0, SZ_4K, 0);
	wbd_run(test);
	EXPECT_END(test, cmd, LINK_NS(SZ_4K) + CHAN_NS(SZ_4K) + T_PROG + LATENCY);
	KUNIT_EXPECT_TRUE(test, cmd->durable);
}

static void fua_waits_for_its_own_program(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd = &t->cmd[0];

	wbd_test_power(test);
	cmd->fua = true;
	cmd = wbd_send(test, WBD_WRITE, 0, UNIT, 0);
	wbd_run(test);
	EXPECT_END(test, cmd, LINK_NS(UNIT) + UNIT_NS + LATENCY);
	KUNIT_EXPECT_TRUE(test, cmd->durable);
}

/* The buffer holds four units, and there is one die. */
static void full_buffer_pushes_back(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd[6];
	u64 first = LINK_NS(UNIT) + UNIT_NS;
	int i;

	t->cfg.channels = 1;
	t->cfg.dies_per_channel = 1;
	wbd_test_power(test);
	for (i = 0; i < 6; i++)
		cmd[i] = wbd_send(test, WBD_WRITE, i * UNIT, UNIT, 0);
	wbd_run(test);
	for (i = 0; i < 4; i++)
		EXPECT_END(test, cmd[i], (i + 1) * LINK_NS(UNIT) + LATENCY);
	/* Room comes with the end of each program. */
	EXPECT_END(test, cmd[4], first + LINK_NS(UNIT) + LATENCY);
	EXPECT_END(test, cmd[5], first + T_PROG + LINK_NS(UNIT) + LATENCY);
}

static void write_larger_than_the_buffer(struct kunit *test)
{
	struct wbd_cmd *a, *b;

	wbd_test_power(test);
	a = wbd_send(test, WBD_WRITE, 0, SZ_256K, 0);
	b = wbd_send(test, WBD_WRITE, SZ_256K, SZ_256K, 0);
	wbd_run(test);
	EXPECT_END(test, a, LINK_NS(SZ_256K) + LATENCY);
	/*
	 * Eight units on four dies: two programs, the channel brings the second
	 * while the first runs.
	 */
	EXPECT_END(test, b, 2 * LINK_NS(SZ_256K) + 2 * CHAN_NS(UNIT) +
		   2 * T_PROG + LATENCY);
}

static void flush_waits_for_all_programs(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *write, *flush, *again;
	u64 now = LINK_NS(SZ_4K) + LATENCY;

	wbd_test_power(test);
	write = wbd_send(test, WBD_WRITE, 0, SZ_4K, 0);
	flush = wbd_send(test, WBD_FLUSH, 0, 0, now);
	wbd_run(test);
	/* The unit was not full: the flush starts its program. */
	EXPECT_END(test, flush, now + CHAN_NS(SZ_4K) + T_PROG + LATENCY);
	KUNIT_EXPECT_GE(test, wbd_sim_retired(&t->sim), write->log_end);
	again = wbd_send(test, WBD_FLUSH, 0, 0, 10000000);
	wbd_run(test);
	EXPECT_END(test, again, 10000000 + LATENCY);
}

static void lazy_cache_writes_only_when_told(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *write, *flush;
	u64 later = NSEC_PER_SEC;

	t->cfg.lazy_cache = 1;
	wbd_test_power(test);
	write = wbd_send(test, WBD_WRITE, 0, UNIT, 0);
	wbd_run(test);
	wbd_sim_advance(&t->sim, later);
	KUNIT_EXPECT_LT(test, wbd_sim_retired(&t->sim), write->log_end);
	flush = wbd_send(test, WBD_FLUSH, 0, 0, later);
	wbd_run(test);
	EXPECT_END(test, flush, later + UNIT_NS + LATENCY);
	KUNIT_EXPECT_GE(test, wbd_sim_retired(&t->sim), write->log_end);
}

/* Nor are zeroes on the medium before, even if nothing else is cached. */
static void lazy_zeroes_wait_for_a_flush(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *zeroes;

	t->cfg.lazy_cache = 1;
	wbd_test_power(test);
	zeroes = wbd_send(test, WBD_ZEROES, 0, 0, 0);
	wbd_run(test);
	KUNIT_EXPECT_LT(test, wbd_sim_retired(&t->sim), zeroes->log_end);
}

static void lazy_fua_leaves_older_data(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *old, *fua;

	t->cfg.lazy_cache = 1;
	wbd_test_power(test);
	old = wbd_send(test, WBD_WRITE, 0, SZ_4K, 0);
	wbd_run(test);
	t->cmd[t->used].fua = true;
	fua = wbd_send(test, WBD_WRITE, SZ_1M, SZ_4K, NSEC_PER_MSEC);
	wbd_run(test);
	wbd_sim_advance(&t->sim, NSEC_PER_SEC);
	KUNIT_EXPECT_TRUE(test, fua->durable);
	KUNIT_EXPECT_LT(test, wbd_sim_retired(&t->sim), old->log_end);
}

/* Each takes a unit and a program, few bytes of the buffer. */
static void many_small_fua_writes(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd = NULL;
	int i;

	t->cfg.write_buffer_kib = 64;
	t->cfg.queue_depth = KUNIT_CMDS;
	wbd_test_power(test);
	for (i = 0; i < KUNIT_CMDS; i++) {
		t->cmd[i].fua = true;
		cmd = wbd_send(test, WBD_WRITE, i * SZ_512, SZ_512, i);
	}
	wbd_run(test);
	/* The fourth die does every fourth. */
	EXPECT_END(test, cmd, 4 * LINK_NS(SZ_512) + CHAN_NS(SZ_512) +
		   KUNIT_CMDS / 4 * T_PROG + LATENCY);
}

static void lazy_cache_makes_room(struct kunit *test)
{
	struct wbd_test *t = test->priv;
	struct wbd_cmd *cmd = NULL;
	int i;

	t->cfg.lazy_cache = 1;
	wbd_test_power(test);
	for (i = 0; i < 5; i++)
		cmd = wbd_send(test, WBD_WRITE, i * UNIT, UNIT, 0);
	wbd_run(test);
	/* One waits for room: the first unit is programmed as soon as it is there. */
	EXPECT_END(test, cmd, LINK_NS(UNIT) + UNIT_NS + LINK_NS(UNIT) + LATENCY);
}

static struct kunit_case wbd_flash_cases[] = {
	KUNIT_CASE(read_idle),
	KUNIT_CASE(reads_on_other_dies_overlap),
	KUNIT_CASE(large_read_streams),
	KUNIT_CASE(write_is_acknowledged_from_the_buffer),
	KUNIT_CASE(read_waits_behind_program),
	KUNIT_CASE(read_that_waits_for_its_die_leaves_the_channel),
	KUNIT_CASE(reset_forgets_a_read_that_was_sensed),
	KUNIT_CASE(without_cache_write_waits_for_program),
	KUNIT_CASE(fua_waits_for_its_own_program),
	KUNIT_CASE(full_buffer_pushes_back),
	KUNIT_CASE(write_larger_than_the_buffer),
	KUNIT_CASE(flush_waits_for_all_programs),
	KUNIT_CASE(lazy_cache_writes_only_when_told),
	KUNIT_CASE(lazy_zeroes_wait_for_a_flush),
	KUNIT_CASE(lazy_fua_leaves_older_data),
	KUNIT_CASE(many_small_fua_writes),
	KUNIT_CASE(lazy_cache_makes_room),
	{}
};

struct kunit_suite wbd_flash_suite = {
	.name = "wbdisk-ssd",
	.init = flash_init,
	.exit = wbd_test_exit,
	.test_cases = wbd_flash_cases,
};
