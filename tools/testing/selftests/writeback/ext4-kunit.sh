#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Relays the results of the KUnit suite of ext4's extents, which is built in and
# ran when the kernel booted (CONFIG_EXT4_KUNIT_TESTS, kunit.enable=1).

# shellcheck source=functions.sh
. "$(dirname "$0")/functions.sh"
# shellcheck source=lib-kunit.sh
. "$WB_DIR/lib-kunit.sh"

opt_parse "KUnit suite of ext4's extents: insert, merge, split, convert." "$@"
kunit_booted ext4_extents CONFIG_EXT4_KUNIT_TESTS
