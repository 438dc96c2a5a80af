#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# ext4 at every moment that a power cut may show: random work (powercut_load) on a disk
# whose writes dm-log-writes records; the log is replayed to one flush after another.
# At each the journal must replay, no file show another one's block or the disk's old
# content (0xAA), and e2fsck find nothing.  At the end of the log all that fsync
# acknowledged must be there.
#
# A replay that leaves out every fourth part of the log shows that the test can fail.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"
# shellcheck source=../lib/work.sh
. "$WB_DIR/lib/work.sh"

readonly DISK_MIB=64 LOG_MIB=1024
readonly WORK_MS=1500
readonly MAPPED=writeback-log
# shellcheck disable=SC2054 # commas of mount options
readonly CONFIGS=(plain:nodelalloc,dioread_nolock 1k:delalloc plain:delalloc
	1k:nodelalloc,dioread_nolock plain:nodelalloc 1k:nodelalloc)

about title \
	"ext4 replayed from the log of its writes to each flush: journal, no foreign blocks, e2fsck"
about replays "none: looks for lost and stale data"
about wall 90
about programs mke2fs e2fsck dmsetup blockdev
about kernel BLK_DEV_LOOP BLK_DEV_DM DM_LOG_WRITES MD
axis points 8 1..9999 "flushes looked at for each configuration"
axis configs 2 "1..${#CONFIGS[@]}" "how many configurations"
measures logwrites_flushes count - "flushes replayed to"
measures logwrites_bytes bytes - "data compared afterwards"
case_parse "$@"

unmap() {
	! dmsetup info "$MAPPED" > /dev/null 2>&1 || dmsetup remove --retry --noudevsync "$MAPPED"
}

# record(config, number) - work on a new file system, all writes of which are logged
record() {
	local size worked=0
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1
	wbdisk_create log fifo capacity_mib=$LOG_MIB store_mib=$LOG_MIB || die "no disk for the log"
	size=$(blockdev --getsz "$DISK_DEV")
	on_exit unmap
	dmsetup create "$MAPPED" --noudevsync --table "0 $size log-writes $DISK_DEV /dev/wbd-log" ||
		die "cannot map $DISK_DEV"
	local dev
	dev=/dev/$(dmsetup info -c --noheadings -o blkdevname "$MAPPED")
	loop_until [ -b "$dev" ]
	pc_format "$1" "$dev" || die "no file system: $1"
	# A mark makes dm-log-writes say how many entries there are.
	dmsetup message "$MAPPED" 0 mark made || die "cannot mark the log"
	loop_until logged || die "the log stays empty"
	made=$(all_points | tail -n 1)
	pc_mount "$1" "$dev" || die "cannot mount: $1"
	pc_load "$2" $((OPT[seed] * 100 + $2 + 1)) $WORK_MS && worked=1
	umount_fs "$MNT"
	unmap
	[ "$worked" -eq 1 ]
}

logged() {
	all_points | grep -q '^[0-9]'
}

# look(config, image, [state...]) - mount a copy, compare, fsck
look() {
	local config=$1 good=1 trial=$WB_OUT/trial
	cp "$2" "$trial"
	shift 2
	if mount -t ext4 -o "loop,${config#*:}" "$trial" "$MNT"; then
		pc_verify "$@" || good=0
		words=$((words + $(pc_count "$WB_OUT/verify" words)))
		umount_fs "$MNT"
	else
		good=0
	fi
	fsck_clean ext4 "$trial" || good=0
	rm -f "$trial"
	[ "$good" -eq 1 ]
}

# old_image(file) - what the disk held before
old_image() {
	tr '\0' '\252' < /dev/zero | dd of="$1" bs=1M count=$DISK_MIB iflag=fullblock status=none
}

# all_points() - numbers of entries at which the log may be cut
#	dm-log-writes writes past the page cache of the log's device.
all_points() {
	blockdev --flushbufs /dev/wbd-log
	"$WB_DIR/log_replay" points /dev/wbd-log
}

# apply(from, to, image)
apply() {
	"$WB_DIR/log_replay" apply /dev/wbd-log "$3" "$1" "$2" > "$WB_OUT/replay" && return
	note_file "$WB_OUT/replay"
	die "cannot replay the log"
}

# replay(config, image) - to the chosen points; 1 if any is bad
replay() {
	local i at=$made point bad=0 points
	mapfile -t points < <(all_points | awk -v made="$made" '$1 > made')
	total=${#points[@]} done=0
	old_image "$2"
	apply 0 "$made" "$2"
	for ((i = 1; i <= OPT[points]; i++)); do
		point=${points[(total - 1) * i / OPT[points]]}
		[ "$point" -gt "$at" ] || continue
		apply "$at" "$point" "$2"
		at=$point done=$((done + 1))
		look "$1" "$2" && continue
		note "after $point of ${points[-1]} entries"
		bad=$((bad + 1))
	done
	[[ $done -gt 0 && $bad -eq 0 ]]
}

# gaps(config, image) - without every fourth of 40 parts of the log something is missing
gaps() {
	local i last
	last=$(all_points | tail -n 1)
	old_image "$2"
	apply 0 "$made" "$2"
	for ((i = 0; i < 40; i++)); do
		[ $((i % 4)) -eq 2 ] ||
			apply $((made + (last - made) * i / 40)) $((made + (last - made) * (i + 1) / 40)) "$2"
	done
	! look "$1" "$2" "$PC_STATE".* > "$WB_OUT/expected" 2>&1
}

# run_config(number) - four results
run_config() {
	local config=${CONFIGS[$1]} image=$WB_OUT/image
	# Not among the bulk data, whatever happens.
	on_exit rm -f "$image" "$WB_OUT/trial"
	check "$config: no error during the work" record "$config" "$1"
	check "$config: every flush leaves a file system that is whole" replay "$config" "$image"
	note "$config: $done of $total flushes looked at"
	looked=$((looked + done))
	check "$config: at the end all is there that fsync acknowledged" look "$config" "$image" "$PC_STATE".*
	check "$config: a log with gaps fails the test" gaps "$config" "$image"
	rm -f "$image" "$PC_STATE".*
	wbdisk_destroy log
	disk_teardown
}

wb_begin
need_wbdisk
pc_need
[ -x "$WB_DIR/log_replay" ] || skip_all "log_replay is not built"
modprobe -q dm-log-writes 2> /dev/null
dmsetup targets | grep -q '^log-writes ' || skip_all "this kernel has no dm-log-writes"
ktap_set_plan $((4 * OPT[configs] + 1))
words=0 looked=0
for ((n = 0; n < OPT[configs]; n++)); do
	run_config "$n"
done
metric logwrites_flushes "$looked"
metric logwrites_bytes $((words * 8))
check_dmesg
ktap_finished
