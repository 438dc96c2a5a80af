#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Everything that limits dirty memory changed at random under load: vm.dirty_*, the
# limits of two devices, cgroups that come and go, memory that is taken, and in the
# end a device that is removed in use.  Looks for hangs, splats, lost data and
# counters that go backwards.

# "$!" is no array, whatever was sourced before.
# shellcheck disable=SC2128

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

readonly MIB=1048576
readonly DISKS=(slow fast) SPEED=(20 300)	# MB/s
readonly FILE_MIB=48
# A writer that is throttled by a limit of 16 MiB on the slow disk needs seconds.
readonly END_S=120

about title "limits of dirty memory, cgroups, memory and devices changed at random under load"
about replays "none: looks for hangs, splats, lost data and counters that go backwards"
about wall 60
about programs awk dd cmp paste
about kernel CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK
axis runtime 6 '1..9999 s' "seconds of changes under load" wall=4
measures 'stress_changes, stress_cgroups' count - "settings changed, and cgroups made, under load"
case_parse "$@"
OPT[disk]=fifo OPT[disk-set]="" OPT[dir]=""

# pick(words...) - one of them
pick() {
	local words=("$@")
	PICKED=${words[RANDOM % ${#words[@]}]}
}

# try(file, values...) - write one of them, which may be refused
try() {
	local file=$1
	shift
	pick "$@"
	[ ! -e "$file" ] || { echo "$PICKED" > "$file"; } 2> /dev/null
	CHANGES=$((CHANGES + 1))
}

change() {
	local bdi
	bdi=$(bdi_dir "wbd-${DISKS[RANDOM % 2]}")
	case $((RANDOM % 9)) in
	0) try $VM/dirty_ratio 0 1 5 20 60 100 ;;
	1) try $VM/dirty_background_ratio 0 1 10 50 ;;
	2) try $VM/dirty_bytes 8192 $MIB $((64 * MIB)) $((4096 * MIB)) ;;
	3) try "$bdi/max_drain_ms" 0 1 100 500 3000 2147483647 -1 text ;;
	4) try "$bdi/max_bytes" 0 4096 $((16 * MIB)) $((AVAIL / 2)) ;;
	5) try "$bdi/min_bytes" 0 4096 $((16 * MIB)) $((AVAIL / 2)) ;;
	6) try "$bdi/max_ratio" 0 1 50 100 ;;
	7) try "$bdi/strict_limit" 0 1 ;;
	8) try $VM/dirty_expire_centisecs 1 100 3000 ;;
	esac
}

# writer(disk, group) - write, sync and compare a file until the end, with two
# contents in turn.  In place: blocks that are freed and not yet discarded would soon
# be more than the modelled disk has memory for.
writer() {
	local file=/mnt/$1/$2 n=0 pattern
	while [ ! -e "$WB_OUT/stop" ]; do
		pattern=$WB_OUT/pattern$((n % 2))
		dd if="$pattern" of="$file" bs=64k conv=notrunc status=none || return
		((n++ % 4)) || sync "$file"
		cmp -s "$pattern" "$file" || { echo "$file" >> "$WB_OUT/lost"; return; }
	done
}

# churn() - cgroups that live for one small file
churn() {
	local n=0 dir disk
	while [ ! -e "$WB_OUT/stop" ]; do
		dir=$CGROUPS/wb-churn-$((n++ % 4))
		disk=${DISKS[n % 2]}
		mkdir "$dir" 2> /dev/null && echo $((64 * MIB)) > "$dir/memory.max"
		(echo "$BASHPID" > "$dir/cgroup.procs"
		 dd if=/dev/zero of="/mnt/$disk/churn" bs=64k count=64 status=none) 2> /dev/null
		rmdir "$dir" 2> /dev/null
		echo "$n" > "$WB_OUT/churned"
	done
}

# pressure() - memory that is taken and given back
pressure() {
	while [ ! -e "$WB_OUT/stop" ]; do
		dd if=/dev/zero of=/dev/shm/fill bs=1M count=$((AVAIL / 2 / MIB)) status=none
		sleep 1
		rm -f /dev/shm/fill
		sleep 1
	done
}

# counters() - all that only ever grow, one line
counters() {
	local disk
	awk '/^dirty_throttle/ { printf "%s ", $2 }' /proc/vmstat
	for disk in "${DISKS[@]}"; do
		cat "$(bdi_dir "wbd-$disk")"/dirty_throttle* 2> /dev/null
	done | paste -sd ' '
}

# grown(before, after) - is none of the counters smaller?
grown() {
	local before after i
	read -ra before <<< "$1"
	read -ra after <<< "$2"
	for ((i = 0; i < ${#before[@]}; i++)); do
		((after[i] >= before[i])) || return
	done
}

wb_begin
need_wbdisk
cgroups_check
dirtyable AVAIL
for i in 0 1; do
	disk_beside ext4 "${DISKS[i]}" fifo "link_mbps=${SPEED[i]}"
done
ktap_set_plan 5
RANDOM=${OPT[seed]} CHANGES=0
yes "dirty memory" | head -c $((FILE_MIB * MIB)) > "$WB_OUT/pattern0"
yes "written back" | head -c $((FILE_MIB * MIB)) > "$WB_OUT/pattern1"
tasks=()
for group in a b; do
	for disk in "${DISKS[@]}"; do
		writer "$disk" "$group" &
		tasks+=("$!")
	done
done
churn &
tasks+=("$!")
pressure &
tasks+=("$!")

end=$((SECONDS + OPT[runtime]))
last=$(counters)
backwards=0
while ((SECONDS < end)); do
	change
	alive load
	sleep .05
	now=$(counters)
	grown "$last" "$now" || { backwards=$((backwards + 1)); note "'$last' became '$now'"; }
	last=$now
done
touch "$WB_OUT/stop"
restore_dirty
for disk in "${DISKS[@]}"; do
	bdi_set strict_limit 0 "wbd-$disk"
	bdi_set max_ratio 100 "wbd-$disk"
	wbdisk_set "$disk" link_mbps 1000
done
metric stress_changes "$CHANGES"
metric stress_cgroups "$(cat "$WB_OUT/churned")"
check "no task hangs" tasks_end $END_S "${tasks[@]}"
rm -f "$WB_OUT"/pattern?
check "no data is lost" [ ! -e "$WB_OUT/lost" ]
if [ -n "$last" ]; then
	check "counters never go backwards" [ "$backwards" -eq 0 ]
else
	skip_test "counters never go backwards" "no dirty_throttle counters"
fi

# Removal in use: the writer sees errors, nothing else happens.
rm -f "$WB_OUT/stop"
wbdisk_set slow link_mbps 20
dd if=/dev/zero of=/mnt/slow/last bs=1M count=4096 status=none 2> /dev/null &
last_writer=$!
sleep 2
wbdisk_set slow power 0
check "a writer to a disk that is removed ends" tasks_end $END_S "$last_writer"
check_dmesg
ktap_finished
