#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The time that writers sleep in balance_dirty_pages(), as the kernel counts it:
# in /proc/vmstat, in memory.stat of the cgroup and its ancestors, for the device
# in sysfs, for the task in delay accounting.  All must agree with each other and
# with the planned sleeps of the tracepoint, name the right cause, and be a part of
# what delay accounting and PSI take for waiting for the disk.

# "$!" is no array, whatever was sourced before.
# shellcheck disable=SC2128

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

readonly MIB=1048576
readonly LIMIT=$((64 * MIB))	# vm.dirty_bytes
WRITE_MIB=160			# more than the limit: the rest must wait
readonly DISK_MBPS=40
CLK_TCK=$(getconf CLK_TCK 2> /dev/null || echo 100)
readonly CLK_TCK
# A sleep ends with a tick of at most 10 ms and when the task has a CPU.
readonly TICK_US=10000
readonly SLACK=0.10		# of the trace, whose pauses are planned ones, and of PSI
readonly DELAYACCT=/proc/sys/kernel/task_delayacct

about title \
	"time that writers sleep for dirty memory as counted for system, cgroup, device and task, by cause"
about replays "SUSE TID 7015931, where only sampled stacks showed that dd was throttled"
about wall 30
about programs awk dd paste
about kernel CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK FTRACE PSI SCHEDSTATS TASKSTATS \
	TASK_DELAY_ACCT TASK_XACCT TASK_IO_ACCOUNTING
about series
about not_fast "where a cgroup's reclaim gives up before any time has passed"
case_parse "$@"
OPT[disk]=fifo OPT[disk-set]="" OPT[dir]=""

# write_in(cgroup, file) - dd that must wait; NOW[] are all counters after it,
# less those of before.  root: in no cgroup.
declare -A NOW
write_in() {
	local group=$1 before=() after=() i
	drop_file "$MNT/file"
	throttle_trace_clear
	snapshot before
	if [ "$group" = root ]; then
		read -r TASK TASK_US <<< "$(write_and_tell)"
	else
		read -r TASK TASK_US <<< "$(cgroup_run "$group" write_and_tell)"
	fi
	snapshot after
	for ((i = 0; i < ${#before[@]}; i++)); do
		NOW[${COUNTERS[i]}]=$((after[i] - before[i]))
	done
	sum_causes vmstat "${GROUPS_SHOWN[@]}"
	read -r TRACE_MS SLEEPS <<< "$(throttle_trace_sum "$WB_OUT/throttle_${group//\//-}.txt")"
	note "$group: ${NOW[vmstat.nr_dirty_throttled]} sleeps, ${NOW[vmstat.us]} us: global ${NOW[vmstat.dirty_throttled_global_usec]}, cgroup ${NOW[vmstat.dirty_throttled_cgroup_usec]}, device ${NOW[vmstat.dirty_throttled_device_usec]}; device's own ${NOW[bdi.dirty_throttled_usec]}; task $TASK_US in $TASK; trace $TRACE_MS ms in $SLEEPS"
}

# sum_causes(source...) - NOW[source.us] is the time for all causes
sum_causes() {
	local source
	for source; do
		NOW[$source.us]=$((NOW[$source.dirty_throttled_global_usec] + NOW[$source.dirty_throttled_cgroup_usec] +
				   NOW[$source.dirty_throttled_device_usec]))
	done
}

# write_and_tell() - number and us of dd's sleeps, as delay accounting has them
write_and_tell() {
	"$WB_DIR/task_delays" dd if=/dev/zero of="$MNT/file" bs=1M count=$WRITE_MIB status=none
}

# snapshot(array) - all counters; their names are in COUNTERS
GROUPS_SHOWN=(parent parent/child small)
COUNTERS=()
snapshot() {
	local -n values=$1
	local group key value
	COUNTERS=() values=()
	while read -r key value; do
		COUNTERS+=("vmstat.$key") values+=("$value")
	done < <(grep 'dirty_throttled' /proc/vmstat)
	for group in "${GROUPS_SHOWN[@]}"; do
		while read -r key value; do
			COUNTERS+=("$group.$key") values+=("$value")
		done < <(grep 'dirty_throttled' "$CGROUPS/wb-$group/memory.stat")
	done
	for key in nr_dirty_throttled dirty_throttled_usec; do
		COUNTERS+=("bdi.$key") values+=("$(bdi_get "$key")")
	done
}

# mostly(cause) - was that the cause of more than nine tenths?
mostly() {
	holds "${NOW[vmstat.us]} > 0 && ${NOW[vmstat.dirty_throttled_$1_usec]} > 0.9 * ${NOW[vmstat.us]}"
}

# Whole microseconds of each sleep against the sum of nanoseconds.
same_us() {
	holds "abs($1 - $2) <= ${NOW[vmstat.nr_dirty_throttled]}"
}

test_counters() {
	write_in root
	check "the global limit is the cause without a cgroup" mostly global
	check "vmstat and device agree" same_us "${NOW[vmstat.us]}" "${NOW[bdi.dirty_throttled_usec]}"
	check "vmstat and task agree" same_us "${NOW[vmstat.us]}" "${TASK_US:-0}"
	check "the task has as many sleeps" [ "${TASK:-0}" = "$SLEEPS" ]
	check "as many sleeps as the trace has" [ "${NOW[vmstat.nr_dirty_throttled]}" -eq "$SLEEPS" ]
	check "as long as the trace plans" holds \
		"abs(${NOW[vmstat.us]} / 1e3 - $TRACE_MS) <= $SLACK * $TRACE_MS + $SLEEPS * $TICK_US / 1e3"

	write_in parent/child
	check "memory.stat: all of it, in the cgroup and its parent" holds \
		"${NOW[parent/child.us]} == ${NOW[vmstat.us]} && ${NOW[parent.us]} == ${NOW[vmstat.us]}"
	check "memory.stat: nothing of it in another cgroup" [ "${NOW[small.us]}" -eq 0 ]

	set_limits bytes $((LIMIT * 2)) $((LIMIT * 4))
	# Longer than the statistics of a cgroup may be old, 4 s.
	WRITE_MIB=$((DISK_MBPS * 8))
	write_in small
	WRITE_MIB=160
	check "the cgroup's own limit is the cause in a small one" mostly cgroup

	bdi_set strict_limit 1
	bdi_set max_bytes "$LIMIT"
	write_in root
	check "the device's limit is the cause with strict_limit" mostly device
	bdi_set max_ratio 100
	bdi_set strict_limit 0

	set_limits ratio 70 80
	write_in root
	check "nothing is counted below the limits" holds \
		"${NOW[vmstat.nr_dirty_throttled]} == 0 && ${NOW[bdi.dirty_throttled_usec]} == 0 && $TASK_US == 0"
}

# A dd that is stopped in the middle: its counters hold still while they are read.
test_relations() {
	local dirty blkio stat run psi
	set_limits bytes $((LIMIT / 2)) "$LIMIT"
	drop_file "$MNT/file"
	if [ ! -e "$CGROUPS/wb-stopped/io.pressure" ]; then
		skip_test "at most what delay accounting says" "needs PSI"
		skip_test "what PSI says" "needs PSI"
		return
	fi
	psi=$(psi_us)
	cgroup_exec stopped dd if=/dev/zero of="$MNT/file" bs=1M count=$((4 * WRITE_MIB)) status=none &
	VICTIM=$!
	sleep 6
	kill -STOP "$VICTIM"
	sleep 1
	read -r _ dirty <<< "$("$WB_DIR/task_delays" -p "$VICTIM")"
	read -ra stat < "/proc/$VICTIM/stat"
	blkio=$((stat[41] * 1000000 / CLK_TCK))
	read -ra run < "/proc/$VICTIM/schedstat"
	psi=$(($(psi_us) - psi))
	kill -KILL "$VICTIM"
	note "stopped dd: dirty $dirty us, blkio delay $blkio us, run queue $((run[1] / 1000)) us, PSI of its cgroup $psi us"
	# Field 42 is in clock ticks.
	check "at most what delay accounting says" holds "$dirty > 0 && $dirty <= $blkio + ${run[1]} / 1e3 + $TICK_US"
	# Nothing else lets this dd wait.
	check "what PSI says" holds "abs($dirty - $psi) <= $SLACK * $psi"
}

# psi_us() - io pressure of the cgroup, some
psi_us() {
	awk '$1 == "some" { sub(/.*total=/, ""); print }' "$CGROUPS/wb-stopped/io.pressure"
}

test_interface() {
	local key
	for key in nr_dirty_throttled dirty_throttled_usec; do
		check "$key of the device is read-only" eval "! bdi_set $key 0"
	done
}

wb_begin
[ -n "$(throttled_us /proc/vmstat)" ] || skip_all "/proc/vmstat has no dirty_throttled_global_usec"
[ -x "$WB_DIR/task_delays" ] || skip_all "needs task_delays: make"
set_value "$DELAYACCT" 1 || skip_all "needs delay accounting"
need_wbdisk
cgroups_check
throttle_trace_start "" || skip_all "needs the tracepoint writeback:balance_dirty_pages"
disk_setup xfs "" "link_mbps=$DISK_MBPS"
cgroup_create parent
echo "+memory +io" > "$CGROUP/cgroup.subtree_control"
mkdir "$CGROUP/child" && on_exit rmdir "$CGROUP/child"
# The cgroup's limit is a share of what it may have, that of bytes of all memory.
cgroup_create small $((LIMIT * 3 / 2))
cgroup_create stopped
ktap_set_plan 16
set_limits bytes $((LIMIT / 2)) "$LIMIT"
test_counters
test_relations
test_interface
check_dmesg
disk_teardown
ktap_finished
