#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Relays the results of the KUnit suite of throttling by bytes, which is built in and
# ran when the kernel booted (CONFIG_BLK_WBT_KUNIT_TEST, kunit.enable=1).

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/kunit.sh
. "$WB_DIR/lib/kunit.sh"

about title "KUnit suite of throttling by bytes: its law in front of simulated disks"
about replays "none: tests wbt_policy=bytes; skips on a kernel without it"
about wall 10
about kernel KUNIT
about series
case_parse "$@"
kunit_booted wbt_law CONFIG_BLK_WBT_KUNIT_TEST
