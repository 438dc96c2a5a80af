#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Relays the results of the KUnit suite of throttling by bytes, which is built in and
# ran when the kernel booted (CONFIG_BLK_WBT_KUNIT_TEST, kunit.enable=1).

# shellcheck source=functions.sh
. "$(dirname "$0")/functions.sh"
# shellcheck source=lib-kunit.sh
. "$WB_DIR/lib-kunit.sh"

opt_parse "KUnit suite of throttling by bytes: limit, order, accounting, control law." "$@"
wb_begin dmesg awk

dmesg | kunit_log > "$WB_OUT/kunit.log"
[ "$(kunit_suites "$WB_OUT/kunit.log" blk-wbt-bytes)" -gt 0 ] ||
	skip_all "no results in the kernel log: needs CONFIG_BLK_WBT_KUNIT_TEST, kunit.enable=1, and to run soon after boot"
ktap_set_plan 2
kunit_relay "$WB_OUT/kunit.log" blk-wbt-bytes
check_dmesg
ktap_finished
