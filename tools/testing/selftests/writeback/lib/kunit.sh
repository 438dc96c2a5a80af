#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Results of KUnit suites in the kernel log, as results of a case.

about programs dmesg awk
measures kunit_cases count - "KUnit cases that ran"

# kunit_log() - a kernel log (stdin) without the time stamps that printk adds
kunit_log() {
	sed 's/^\[[^]]*\] \?//'
}

# kunit_suites(log, prefix) - how many suites of this name have ended
kunit_suites() {
	grep -cE "^(not )?ok [0-9]+ $2" "$1"
}

# kunit_relay(log, prefix) - one result per suite, its own nested before it
kunit_relay() {
	awk -v prefix="$2" '
		/^    KTAP version/ { part = "" }
		/^    / { part = part $0 "\n"; next }
		/^(not )?ok [0-9]+ / {
			if (index($NF, prefix) == 1) printf "%s%s\n", part, $0
			part = ""
		}' "$1" > "$1.suites"
	while IFS= read -r line; do
		case $line in
		"    "*) printf '%s\n' "$line" ;;
		"ok "*) ktap_test_pass "${line##* }" ;;
		"not ok "*) ktap_test_fail "${line##* }" ;;
		esac
	done < "$1.suites"
	metric kunit_cases "$(grep -cE '^ +(not )?ok [0-9]+ ' "$1.suites")"
}

# kunit_booted(suite, option) - a whole case: the results of a suite that is built in
# and ran when the kernel booted
kunit_booted() {
	wb_begin
	dmesg | kunit_log > "$WB_OUT/kunit.log"
	[ "$(kunit_suites "$WB_OUT/kunit.log" "$1")" -gt 0 ] ||
		skip_all "no results in the kernel log: needs $2, kunit.enable=1, and to run soon after boot"
	ktap_set_plan 2
	kunit_relay "$WB_OUT/kunit.log" "$1"
	check_dmesg
	ktap_finished
}
