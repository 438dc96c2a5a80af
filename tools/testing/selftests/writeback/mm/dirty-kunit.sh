#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Relays the results of the KUnit suite of the time limit, which is built in and ran
# when the kernel booted (CONFIG_PAGE_WRITEBACK_KUNIT_TEST, kunit.enable=1).

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/kunit.sh
. "$WB_DIR/lib/kunit.sh"

about title "KUnit suite of the time limit for dirty data: in front of modelled devices"
about replays "none: tests max_drain_ms; skips on a kernel without it"
about wall 10
about kernel KUNIT
about series
case_parse "$@"
kunit_booted bdi_drain CONFIG_PAGE_WRITEBACK_KUNIT_TEST
