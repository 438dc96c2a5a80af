#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs the KUnit suites of wbdisk's model and store and relays their results:
# one result per suite, with the suite's own nested before it.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/kunit.sh
. "$WB_DIR/lib/kunit.sh"

KO=$WB_DIR/test_modules/wbdisk_kunit.ko

about title "KUnit tests of the disk model's arithmetic"
about replays "none: tests the test module"
about wall 15
about programs insmod
about kernel KUNIT
case_parse "$@"
wb_begin

need_wbdisk
[ -r "$KO" ] || skip_all "needs test_modules/wbdisk_kunit.ko: a kernel with CONFIG_KUNIT"
insmod "$KO" || skip_all "$KO does not load: CONFIG_KUNIT?"
on_exit rmmod wbdisk_kunit

# The suites have run when insmod returns.
dmesg_new | kunit_log > "$WB_OUT/kunit.log"
grep -q 'kunit: disabled' "$WB_OUT/kunit.log" &&
	skip_all "KUnit is built in but disabled: boot with kunit.enable=1"
suites=$(kunit_suites "$WB_OUT/kunit.log" wbdisk-)
[ "$suites" -gt 0 ] ||
	skip_all "no KUnit results in the kernel log: is the log too small?"

ktap_set_plan $((suites + 2))
kunit_relay "$WB_OUT/kunit.log" wbdisk-
check "all four suites ran" [ "$suites" -eq 4 ]
check_dmesg
ktap_finished
