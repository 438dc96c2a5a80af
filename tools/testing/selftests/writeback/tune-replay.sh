#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The same readers and writer twice on one disk, with two lists of settings: what
# "wb tune --simulate" shows as before and after.  The lists are KEY=VALUE,... of
#	vm.dirty_bytes, vm.dirty_ratio, vm.dirty_background_...
#	queue.scheduler, queue.max_sectors_kb, queue.wbt_lat_usec, queue.wbt_policy
#	bdi.max_bytes, bdi.max_ratio_fine, bdi.strict_limit, bdi.max_drain_ms
# written in the order given; the second list changes what the first one left.
# With --held 1 it also shows how long the writer slept in balance_dirty_pages():
#	throttled_s, held_ms_max - all sleeps, and the longest one in one go
# It asserts that the settings are taken and the load runs, not which is better.

# shellcheck source=functions.sh
. "$(dirname "$0")/functions.sh"
# shellcheck source=lib-tune.sh
. "$WB_DIR/lib-tune.sh"
# shellcheck source=lib-dirty.sh
. "$WB_DIR/lib-dirty.sh"

opt_add fs xfs 'xfs|ext4' "file system: xfs or ext4"
opt_add before queue.scheduler=mq-deadline "($SETTING_RE(,$SETTING_RE)*)?" "settings of the first run: KEY=VALUE,..."
opt_add after queue.scheduler=none,queue.max_sectors_kb=128 "($SETTING_RE(,$SETTING_RE)*)?" "settings of the second run"
opt_add readers 4 '0|[1-9][0-9]?' "number of readers; 0 = only the writer"
opt_add probe none 'none|fsync' "also append 4 KiB and fsync, 100 times a second"
opt_add mib 256 '[1-9][0-9]{0,5}' "MiB to write"
opt_add held 0 '0|1' "trace how long the writer sleeps for dirty memory"
# The rig gives the guest that much; on a real machine it is a remark.
opt_add ram 2048 '[1-9][0-9]{2,4}' "MiB of memory of the guest"
opt_disk fifo
opt_parse "One load, two lists of settings." "$@"

# held_start() / held_stop(suffix) - around one load
function held_start() {
	[ "${OPT[held]}" = 0 ] || throttle_trace_clear
}

function held_stop() {
	local events=$WB_OUT/throttle_$1.txt ms sleeps
	[ "${OPT[held]}" = 1 ] || return 0
	read -r ms sleeps < <(throttle_trace_sum "$events")
	note "$1: slept $sleeps times"
	metric "throttled_s_$1" "$(calc "$ms / 1000")" s
	metric "held_ms_max_$1" "$(longest_block "$events")" ms
}

wb_begin fio jq awk dd chrt
disk_check
[ "${OPT[held]}" = 0 ] || throttle_trace_start 4096 ||
	skip_all "needs the tracepoint writeback:balance_dirty_pages"
ktap_set_plan 5
disk_setup "${OPT[fs]}"
metric memory_bytes "$(mem_total)" bytes
for phase in before after; do
	check "$phase: settings are taken" settings_apply "${OPT[$phase]}"
	held_start
	check "$phase: the load ran" load_run "$phase" --writer=buffered \
		--readers="${OPT[readers]}" --probe="${OPT[probe]}" --mib="${OPT[mib]}"
	held_stop "$phase"
done
disk_teardown
check_dmesg
ktap_finished
