#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Relays the results of the KUnit suite of ext4's extents, which is built in and
# ran when the kernel booted (CONFIG_EXT4_KUNIT_TESTS, kunit.enable=1).

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/kunit.sh
. "$WB_DIR/lib/kunit.sh"

about title "KUnit suite of ext4's extents: insert, merge, split, convert"
about replays \
	"none: tests rules of dioread_nolock with nodelalloc; skips on a kernel without the suite"
about wall 10
about kernel KUNIT
about series
case_parse "$@"
kunit_booted ext4_extents CONFIG_EXT4_KUNIT_TESTS
