#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What wbt-stress and dirty-stress, which change settings under load, leave out:
# disks that come and go all the time, by several tasks, while others read and write
# their attributes; CPUs that go offline; the module unloaded in use.  A disk beside
# them has to keep its data.

# "$!" is no array, whatever was sourced before.
# shellcheck disable=SC2128

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

readonly CPU_ONLINE=/sys/devices/system/cpu/cpu1/online
readonly KEEP=keep KEEP_MIB=4
# Tasks end with the disk they are waiting for.
readonly END_S=60

about title \
	"disks made and removed by several tasks while others use them, CPUs taken offline, the module unloaded in use"
about replays "none: looks for hangs, splats and lost data"
about cpus 2
about programs awk dd cmp cksum ps
about once runtime=4
about kernel CGROUPS MEMCG BLK_CGROUP
about not_fast "which has one CPU"
axis runtime 8 '1..9999 s' "seconds of it" wall=4
measures 'races_disks, races_cpu' count - "disks that came and went, and how often a CPU did"
case_parse "$@"

# until_stop(task, function, args...) - again and again; how often is in the file
#	count-FUNCTION-TASK
until_stop() {
	local n=0 name=$2-$1
	# Each task its own numbers.
	RANDOM=$((OPT[seed] + $(cksum <<< "$*" | cut -d ' ' -f 1) % 30000))
	shift
	while [ ! -e "$WB_OUT/stop" ]; do
		"$@" > /dev/null 2>&1 && n=$((n + 1))
		echo "$n" > "$WB_OUT/count-$name"
	done
}

# there_or_gone(device, directory) - another task may have removed its directory
there_or_gone() {
	[[ -b $1 || ! -e $2 ]]
}

# appear(name) - a disk appears, is written to, and goes while it is
appear() {
	local dir=$WBDISK_CONFIGFS/$1 pid
	mkdir "$dir" || return
	echo fifo > "$dir/profile"
	echo 1 > "$dir/power"
	loop_until there_or_gone "/dev/wbd-$1" "$dir"
	dd if=/dev/zero of="/dev/wbd-$1" bs=64k count=512 conv=nocreat,fsync &
	pid=$!
	sleep ".0$((RANDOM % 10))"
	((RANDOM % 2)) || echo 0 > "$dir/power"
	rmdir "$dir"
	wait $pid
	[ ! -e "$dir" ]
}

# flash(name) - a disk appears and goes at once: its queue is made while a CPU goes
flash() {
	local dir=$WBDISK_CONFIGFS/$1
	[ -d "$dir" ] || { mkdir "$dir" && echo fifo > "$dir/profile"; } || return
	echo 1 > "$dir/power"
	echo 0 > "$dir/power"
}

# look(name) - at all that there is of a disk
look() {
	cat /sys/block/wbd-"$1"/{stat,inflight,queue/*,bdi/*} /sys/kernel/debug/block/wbd-"$1"/{state,rqos/wbt/*} \
		"$WBDISK_CONFIGFS/$1"/* /sys/kernel/debug/bdi/*/*stats
	true
}

# change(name) - a setting
change() {
	local queue=/sys/block/wbd-$1/queue bdi=/sys/block/wbd-$1/bdi
	case $((RANDOM % 5)) in
	0) echo bytes > "$queue/wbt_policy" ;;
	1) echo $((RANDOM % 3000)) > "$queue/wbt_lat_usec" ;;
	2) echo bfq > "$queue/scheduler" ;;
	3) echo $((RANDOM % 3000)) > "$bdi/max_drain_ms" ;;
	4) echo 1 > "$bdi/strict_limit" ;;
	esac
}

unload() {
	rmmod wbdisk && touch "$WB_OUT/unloaded"
	sleep .1
	true
}

hotplug() {
	echo 0 > $CPU_ONLINE && sleep ".0$((RANDOM % 10))" && echo 1 > $CPU_ONLINE
}

# keep() - write, sync, compare
keep() {
	dd if="$WB_OUT/pattern" of=/mnt/$KEEP/file bs=64k conv=notrunc,fsync || touch "$WB_OUT/lost"
	echo 1 > $VM/drop_caches
	cmp "$WB_OUT/pattern" /mnt/$KEEP/file || touch "$WB_OUT/lost"
}

total() {
	cat "$WB_OUT"/count-"$1"-* | awk '{ n += $1 } END { print n + 0 }'
}

reload() {
	rmmod wbdisk && insmod "$WB_DIR/test_modules/wbdisk.ko" && loop_until [ -d "$WBDISK_CONFIGFS" ]
}

wb_begin
need_wbdisk
[ -r "$WB_DIR/test_modules/wbdisk.ko" ] || skip_all "needs test_modules/wbdisk.ko"
disk_beside ext4 $KEEP sata-ssd
seq 1000000 9999999 | head -c ${KEEP_MIB}M > "$WB_OUT/pattern"
on_exit rm -f "$WB_OUT/pattern"
ktap_set_plan 7
tasks=()
# Two tasks for the disk "b": one of them loses.
for words in "appear a" "appear b" "appear b" "flash c" "look a" "look b" "change a" "change b" keep unload; do
	# shellcheck disable=SC2086 # its words
	until_stop "${#tasks[@]}" $words &
	tasks+=("$!")
done
if [ -w $CPU_ONLINE ]; then
	until_stop "${#tasks[@]}" hotplug &
	tasks+=("$!")
fi
end=$((SECONDS + OPT[runtime]))
while ((SECONDS < end)); do
	alive load
	sleep 1
done
touch "$WB_OUT/stop"
check "no task hangs" tasks_end $END_S "${tasks[@]}"
for name in a b c; do
	wbdisk_destroy $name
done
metric races_disks "$(($(total appear) + $(total flash)))"
check "disks came and went" [ "$(total appear)" -gt 0 ]
check "the module stayed" [ ! -e "$WB_OUT/unloaded" ]
check "the disk beside them lost nothing" [ ! -e "$WB_OUT/lost" ]
if [ -w $CPU_ONLINE ]; then
	echo 1 > $CPU_ONLINE
	metric races_cpu "$(total hotplug)"
	check "a CPU went offline and came back" [ "$(total hotplug)" -gt 0 ]
else
	skip_test "a CPU went offline and came back" "one CPU"
fi
disk_drop $KEEP
check "without disks the module unloads, and loads again" reload
check_dmesg
ktap_finished
