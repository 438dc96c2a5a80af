/* SPDX-License-Identifier: GPL-2.0 */
/* What the suites of the model share. */
#ifndef _WBDISK_KUNIT_H
#define _WBDISK_KUNIT_H

#include <kunit/test.h>
#include <linux/sizes.h>

#include "wbdisk_model.h"

#define KUNIT_CMDS	48

/* A disk with numbers that are easy to calculate with. */
struct wbd_test {
	struct wbd_config cfg;
	struct wbd_sim sim;
	struct wbd_cmd cmd[KUNIT_CMDS];
	unsigned int used;
};

int wbd_test_init(struct kunit *test);
void wbd_test_exit(struct kunit *test);
void wbd_test_power(struct kunit *test);
struct wbd_cmd *wbd_send(struct kunit *test, enum wbd_op op, u64 pos, u32 bytes,
			 u64 now);
void wbd_run(struct kunit *test);

/* Time at which a command completed, once wbd_run() returned. */
static inline u64 wbd_end(const struct wbd_cmd *cmd)
{
	return cmd->event.when;
}

#define EXPECT_END(test, cmd, t) KUNIT_EXPECT_EQ(test, wbd_end(cmd), (u64)(t))

extern struct kunit_suite wbd_flash_suite;
extern struct kunit_suite wbd_hdd_suite;
extern struct kunit_suite wbd_store_suite;

#endif /* _WBDISK_KUNIT_H */
