// SPDX-License-Identifier: GPL-2.0
/* KUnit tests of the data of a disk. */
#include <kunit/test.h>
#include <linux/sizes.h>
#include <linux/string.h>

#include "wbdisk_kunit.h"
#include "wbdisk_store.h"

#define PAGES	1024	/* more than one leaf */

#define EXPECT_STATUS(test, call, status) \
	KUNIT_EXPECT_TRUE(test, (call) == (status))

struct store_test {
	struct wbd_store store;
	u8 *buf;
};

static int store_init(struct kunit *test)
{
	struct store_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);

	if (!t)
		return -ENOMEM;
	t->buf = kunit_kzalloc(test, PAGE_SIZE, GFP_KERNEL);
	if (!t->buf)
		return -ENOMEM;
	test->priv = t;
	prandom_seed_state(&t->store.rnd, 1);
	if (wbd_store_init(&t->store, PAGES * PAGE_SIZE))
		return -ENOMEM;
	t->store.cap = PAGES;
	prandom_seed_state(&t->store.rnd, 1);
	return 0;
}

static void store_exit(struct kunit *test)
{
	struct store_test *t = test->priv;

	if (!t)
		return;
	KUNIT_EXPECT_EQ(test, t->store.reserved, 0);
	wbd_store_destroy(&t->store);
}

/* Write bytes of @value in place, of which @log_end is the position. */
static blk_status_t put(struct kunit *test, u64 pos, u32 bytes, u8 value,
			bool durable, u64 log_end)
{
	struct store_test *t = test->priv;
	struct wbd_stage stage;
	u64 at = pos, end = pos + bytes;
	blk_status_t status = BLK_STS_OK;

	memset(t->buf, value, PAGE_SIZE);
	wbd_stage_begin(&t->store, &stage);
	while (at < end && !status) {
		u32 part = min_t(u64, PAGE_SIZE - offset_in_page(at), end - at);

		status = wbd_stage_add(&t->store, &stage, at, t->buf, part);
		at += part;
	}
	if (status)
		wbd_stage_drop(&t->store, &stage);
	else
		KUNIT_EXPECT_TRUE(test, wbd_store_install(&t->store, &stage, pos,
							  bytes, durable, log_end));
	return status;
}

static u8 get(struct kunit *test, u64 pos)
{
	struct store_test *t = test->priv;

	wbd_store_read(&t->store, round_down(pos, SZ_512), t->buf, SZ_512);
	return t->buf[offset_in_page(pos) % SZ_512];
}

static void unwritten_reads_zero(struct kunit *test)
{
	struct store_test *t = test->priv;

	t->buf[0] = 1;
	KUNIT_EXPECT_EQ(test, get(test, 0), 0);
	put(test, 0, PAGE_SIZE, 0xaa, true, 0);
	KUNIT_EXPECT_EQ(test, get(test, 0), 0xaa);
	KUNIT_EXPECT_EQ(test, get(test, PAGE_SIZE), 0);
}

static void zero_pages_are_not_kept(struct kunit *test)
{
	struct store_test *t = test->priv;

	put(test, 0, 8 * PAGE_SIZE, 0, true, 0);
	KUNIT_EXPECT_EQ(test, t->store.kept, 0);
	put(test, 0, 8 * PAGE_SIZE, 1, true, 0);
	KUNIT_EXPECT_EQ(test, t->store.kept, 8);
	put(test, 2 * PAGE_SIZE, 4 * PAGE_SIZE, 0, true, 0);
	KUNIT_EXPECT_EQ(test, t->store.kept, 4);
	KUNIT_EXPECT_EQ(test, get(test, PAGE_SIZE), 1);
	KUNIT_EXPECT_EQ(test, get(test, 2 * PAGE_SIZE), 0);
	/* In pieces, too. */
	put(test, 0, SZ_512, 0, true, 0);
	KUNIT_EXPECT_EQ(test, t->store.kept, 4);
	put(test, SZ_512, PAGE_SIZE - SZ_512, 0, true, 0);
	KUNIT_EXPECT_EQ(test, t->store.kept, 3);
}

static void sectors_around_a_write_stay(struct kunit *test)
{
	put(test, 0, 2 * PAGE_SIZE, 1, true, 0);
	put(test, PAGE_SIZE - SZ_512, SZ_1K, 2, true, 0);
	KUNIT_EXPECT_EQ(test, get(test, PAGE_SIZE - SZ_1K), 1);
	KUNIT_EXPECT_EQ(test, get(test, PAGE_SIZE - SZ_512), 2);
	KUNIT_EXPECT_EQ(test, get(test, PAGE_SIZE), 2);
	KUNIT_EXPECT_EQ(test, get(test, PAGE_SIZE + SZ_512), 1);
}

static void staged_data_is_not_visible(struct kunit *test)
{
	struct store_test *t = test->priv;
	struct wbd_stage stage;

	put(test, 0, PAGE_SIZE, 1, true, 0);
	memset(t->buf, 2, PAGE_SIZE);
	wbd_stage_begin(&t->store, &stage);
	EXPECT_STATUS(test, wbd_stage_add(&t->store, &stage, 0, t->buf, PAGE_SIZE),
		      BLK_STS_OK);
	KUNIT_EXPECT_EQ(test, get(test, 0), 1);
	wbd_stage_drop(&t->store, &stage);
	KUNIT_EXPECT_EQ(test, get(test, 0), 1);
	KUNIT_EXPECT_EQ(test, t->store.kept, 1);
}

static void discard_frees(struct kunit *test)
{
	struct store_test *t = test->priv;
	struct wbd_stage stage;

	put(test, 0, 16 * PAGE_SIZE, 1, true, 0);
	put(test, 600 * PAGE_SIZE, PAGE_SIZE, 1, true, 0);
	wbd_stage_begin(&t->store, &stage);
	/* Over the end of a leaf and one that does not exist. */
	KUNIT_EXPECT_TRUE(test, wbd_store_install(&t->store, &stage,
						  SZ_512, 900 * PAGE_SIZE,
						  true, 0));
	KUNIT_EXPECT_EQ(test, t->store.kept, 1);
	KUNIT_EXPECT_EQ(test, get(test, SZ_512), 1);
	KUNIT_EXPECT_EQ(test, get(test, PAGE_SIZE), 0);
}

static void zeroes_cover_the_edges(struct kunit *test)
{
	struct store_test *t = test->priv;
	u64 pos = PAGE_SIZE - SZ_512, bytes = 2 * PAGE_SIZE + SZ_1K - SZ_512;
	struct wbd_stage stage;

	put(test, 0, 5 * PAGE_SIZE, 1, true, 0);
	wbd_stage_begin(&t->store, &stage);
	EXPECT_STATUS(test, wbd_stage_edges(&t->store, &stage, pos, bytes), BLK_STS_OK);
	KUNIT_EXPECT_TRUE(test, wbd_store_install(&t->store, &stage, pos, bytes,
						  true, 0));
	KUNIT_EXPECT_EQ(test, get(test, pos - 1), 1);
	KUNIT_EXPECT_EQ(test, get(test, pos), 0);
	KUNIT_EXPECT_EQ(test, get(test, pos + bytes - 1), 0);
	KUNIT_EXPECT_EQ(test, get(test, pos + bytes), 1);
	KUNIT_EXPECT_EQ(test, t->store.kept, 3);
}

static void cap_refuses_new_data_only(struct kunit *test)
{
	struct store_test *t = test->priv;

	t->store.cap = 4;
	EXPECT_STATUS(test, put(test, 0, 4 * PAGE_SIZE, 1, true, 0), BLK_STS_OK);
	EXPECT_STATUS(test, put(test, 4 * PAGE_SIZE, PAGE_SIZE, 1, true, 0), BLK_STS_NOSPC);
	EXPECT_STATUS(test, put(test, 0, 4 * PAGE_SIZE, 2, true, 0), BLK_STS_OK);
	EXPECT_STATUS(test, put(test, 8 * PAGE_SIZE, PAGE_SIZE, 0, true, 0), BLK_STS_OK);
	KUNIT_EXPECT_EQ(test, get(test, 0), 2);
}

static void cut_loses_what_is_cached(struct kunit *test)
{
	struct store_test *t = test->priv;

	put(test, 0, PAGE_SIZE, 1, true, 0);
	put(test, 0, 2 * PAGE_SIZE, 2, false, 1);
	KUNIT_EXPECT_EQ(test, get(test, 0), 2);
	KUNIT_EXPECT_EQ(test, t->store.nr_cached, 2);
	wbd_store_cut(&t->store, 0, 0);
	KUNIT_EXPECT_EQ(test, get(test, 0), 1);
	KUNIT_EXPECT_EQ(test, get(test, PAGE_SIZE), 0);
	KUNIT_EXPECT_EQ(test, t->store.kept, 1);
	KUNIT_EXPECT_EQ(test, t->store.nr_cached, 0);
}

static void cut_spares_what_was_flushed(struct kunit *test)
{
	struct store_test *t = test->priv;
	u64 seq;

	put(test, 0, PAGE_SIZE, 1, false, 1);
	seq = wbd_store_seq(&t->store);
	/* The same page again between the flush's arrival and its end. */
	put(test, 0, PAGE_SIZE, 2, false, 2);
	KUNIT_EXPECT_TRUE(test, wbd_store_flush(&t->store, seq, t->store.epoch));
	KUNIT_EXPECT_EQ(test, get(test, 0), 2);
	wbd_store_cut(&t->store, 0, 0);
	KUNIT_EXPECT_EQ(test, get(test, 0), 1);
}

static void cut_spares_what_was_programmed(struct kunit *test)
{
	struct store_test *t = test->priv;

	put(test, 0, PAGE_SIZE, 1, false, 5);
	put(test, PAGE_SIZE, PAGE_SIZE, 1, false, 6);
	wbd_store_retire(&t->store, 5);
	KUNIT_EXPECT_EQ(test, t->store.nr_cached, 1);
	wbd_store_cut(&t->store, 0, 5);
	KUNIT_EXPECT_EQ(test, get(test, 0), 1);
	KUNIT_EXPECT_EQ(test, get(test, PAGE_SIZE), 0);
}

static void cut_brings_discarded_data_back(struct kunit *test)
{
	struct store_test *t = test->priv;
	struct wbd_stage stage;

	put(test, 0, PAGE_SIZE, 1, true, 0);
	wbd_stage_begin(&t->store, &stage);
	wbd_store_install(&t->store, &stage, 0, PAGE_SIZE, false, 1);
	KUNIT_EXPECT_EQ(test, get(test, 0), 0);
	wbd_store_cut(&t->store, 0, 0);
	KUNIT_EXPECT_EQ(test, get(test, 0), 1);
}

static void nothing_staged_survives_a_cut(struct kunit *test)
{
	struct store_test *t = test->priv;
	struct wbd_stage stage;
	u32 epoch = t->store.epoch;

	memset(t->buf, 1, PAGE_SIZE);
	wbd_stage_begin(&t->store, &stage);
	wbd_stage_add(&t->store, &stage, 0, t->buf, PAGE_SIZE);
	wbd_store_cut(&t->store, 0, 0);
	KUNIT_EXPECT_FALSE(test, wbd_store_install(&t->store, &stage, 0,
						   PAGE_SIZE, true, 0));
	KUNIT_EXPECT_FALSE(test, wbd_store_flush(&t->store, 0, epoch));
	KUNIT_EXPECT_EQ(test, get(test, 0), 0);
}

static unsigned int survivors(struct kunit *test, u32 seed, u32 ppm, u64 *which)
{
	struct store_test *t = test->priv;
	unsigned int i, n = 0;

	prandom_seed_state(&t->store.rnd, seed);
	put(test, 0, 64 * PAGE_SIZE, 0, true, 0);
	put(test, 0, 64 * PAGE_SIZE, 1, false, 1);
	wbd_store_cut(&t->store, ppm, 0);
	for (*which = 0, i = 0; i < 64; i++) {
		if (get(test, i * PAGE_SIZE)) {
			*which |= 1ULL << i;
			n++;
		}
	}
	return n;
}

static void survivors_are_chosen_by_the_seed(struct kunit *test)
{
	u64 a, b, c;
	unsigned int n = survivors(test, 1, 500000, &a);

	KUNIT_EXPECT_GT(test, n, 16);
	KUNIT_EXPECT_LT(test, n, 48);
	survivors(test, 1, 500000, &b);
	survivors(test, 2, 500000, &c);
	KUNIT_EXPECT_EQ(test, a, b);
	KUNIT_EXPECT_NE(test, a, c);
	KUNIT_EXPECT_EQ(test, survivors(test, 1, 0, &a), 0);
	KUNIT_EXPECT_EQ(test, survivors(test, 1, 1000000, &a), 64);
}

static struct kunit_case wbd_store_cases[] = {
	KUNIT_CASE(unwritten_reads_zero),
	KUNIT_CASE(zero_pages_are_not_kept),
	KUNIT_CASE(sectors_around_a_write_stay),
	KUNIT_CASE(staged_data_is_not_visible),
	KUNIT_CASE(discard_frees),
	KUNIT_CASE(zeroes_cover_the_edges),
	KUNIT_CASE(cap_refuses_new_data_only),
	KUNIT_CASE(cut_loses_what_is_cached),
	KUNIT_CASE(cut_spares_what_was_flushed),
	KUNIT_CASE(cut_spares_what_was_programmed),
	KUNIT_CASE(cut_brings_discarded_data_back),
	KUNIT_CASE(nothing_staged_survives_a_cut),
	KUNIT_CASE(survivors_are_chosen_by_the_seed),
	{}
};

struct kunit_suite wbd_store_suite = {
	.name = "wbdisk-store",
	.init = store_init,
	.exit = store_exit,
	.test_cases = wbd_store_cases,
};
