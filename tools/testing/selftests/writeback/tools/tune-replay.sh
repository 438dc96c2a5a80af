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

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/load.sh
. "$WB_DIR/lib/load.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"

about title \
	"readers and a writer on one disk with two lists of settings, before and after: 'wb tune --simulate'"
about replays "none: compares settings"
about programs fio jq awk dd chrt
about kernel BLK_WBT BLK_WBT_MQ FTRACE MQ_IOSCHED_DEADLINE
about not_fast "where fio, which spins while it waits, takes minutes"
axis_disk fifo
axis fs xfs 'xfs|ext4' "file system of the disk"
axis before queue.scheduler=mq-deadline "@settings" \
	"settings of the first run: vm.dirty_*, queue.*, bdi.*"
axis after queue.scheduler=none,queue.max_sectors_kb=128 "@settings" "settings of the second run"
axis readers 4 0..64 "number of fio readers (psync, O_DIRECT, 4 KiB, random); 0 = only the writer"
axis probe none 'none|fsync' "beside the writer: append 4 KiB and fsync, 100 times a second"
axis mib 256 '1..16384 MiB' "size of the file written"
axis held 0 '0|1' "trace how long the writer sleeps in balance_dirty_pages"
# The rig gives the guest that much; on a real machine it is a remark.
axis ram 2048 '512..65536 MiB' "memory of the guest"
measures memory_bytes bytes - "all memory"
measures throttled_s_R s - \
	"--held=1: time the writer slept in balance_dirty_pages with settings R"
measures held_ms_max_X ms lower "--held=1: longest time that the writer was held in one go"
measures_load_run
case_parse "$@"

# held_start() / held_stop(suffix) - around one load
held_start() {
	[ "${OPT[held]}" = 0 ] || throttle_trace_clear
}

held_stop() {
	local events=$WB_OUT/throttle_$1.txt ms sleeps
	[ "${OPT[held]}" = 1 ] || return 0
	read -r ms sleeps < <(throttle_trace_sum "$events")
	note "$1: slept $sleeps times"
	metric "throttled_s_$1" "$(calc "$ms / 1000")"
	metric "held_ms_max_$1" "$(longest_block "$events")"
}

wb_begin
disk_check
[ "${OPT[held]}" = 0 ] || throttle_trace_start 4096 ||
	skip_all "needs the tracepoint writeback:balance_dirty_pages"
ktap_set_plan 5
disk_setup "${OPT[fs]}"
metric memory_bytes "$(mem_total)"
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
