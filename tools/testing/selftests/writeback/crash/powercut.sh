#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Power cuts at random moments of random work, on ext4 and XFS.
#
# The disk's cache is volatile and lazy: what was not flushed is gone, except for a
# random share of its pages.  Four writers (powercut_load) change files in all ways and
# fsync them; then the power is cut.  Afterwards the journal must replay, fsync'd data
# and sizes be there, no block of another file, of an earlier file system or of the
# disk's old content (0xAA) show in any file, and fsck find nothing.
#
# Two cuts are made to go wrong, to see that the test can: a disk that is sent no
# flushes, and ext4 with data=writeback, which promises less.
#
# Cut number N depends on the seed and on the cuts before it, so the same options,
# kernel and seed repeat it.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"
# shellcheck source=../lib/work.sh
. "$WB_DIR/lib/work.sh"

readonly DISK_MIB=96
readonly MIN_MS=100 MAX_MS=2000
readonly KEEP_PPM=(0 500000 100000 900000)
readonly BROKEN_TRIES=4
# shellcheck disable=SC2054 # commas of mount options
readonly CONFIGS=(
	plain:delalloc xfs:4k 1k:nodelalloc,dioread_nolock bigalloc:nodelalloc quota:delalloc
	plain:nodelalloc,dioread_nolock 1k:delalloc bigalloc:nodelalloc,dioread_nolock
	xfs:1k quota:nodelalloc plain:nodelalloc 1k:nodelalloc bigalloc:delalloc
	quota:nodelalloc,dioread_nolock
)

about title \
	"power cuts at random moments of random work on ext4 and XFS: fsync'd data, no foreign blocks, fsck"
about replays "none: looks for lost and stale data"
about wall 90
about once cuts=20
about programs mke2fs e2fsck mkfs.xfs xfs_repair chrt
about kernel QUOTA QFMT_V2
axis cuts 14 1..999 "how often the power is cut"
axis config all "all|$(IFS='|'; echo "${CONFIGS[*]}")" \
	"format and mount options, all in turn or one"
measures 'powercut_cuts, powercut_ops, powercut_acks' count - \
	"power cuts, operations before them, and fsyncs that returned 0"
measures powercut_bytes bytes - "data compared afterwards"
case_parse "$@"

# power_on() - after a cut, or for the first time
power_on() {
	wbdisk_set test power 0
	wbdisk_set test seed $((1 + $(draw "$1" 1 1000000)))
	wbdisk_set test fua "$(draw "$1" 4 2)"
	wbdisk_set test power 1
	loop_until [ -b "$DISK_DEV" ]
}

# XFS's umount polls for inodes that a kernel thread is to clean. In the fast lane the
# clock stands still meanwhile, and nobody of the same class takes the CPU from it.
readonly POLITE=(chrt -i 0)

# cut(number, config, keep_ppm) - work, power cut; the disk is on again
cut() {
	local ms
	ms=$((MIN_MS + $(draw "$1" 2 $((MAX_MS - MIN_MS)))))
	note "cut $1, $2: after $ms ms, $3 ppm of the cache survive"
	wbdisk_set test cut_keep_ppm "$3"
	pc_load "$1" $((1 + $(draw "$1" 3 1000000))) "$ms" "$WBDISK_CONFIGFS/test/cut"
	local ret=$?
	umount_fs "$MNT" "${POLITE[@]}" 2> /dev/null
	power_on $(($1 + 1))
	return "$ret"
}

start() {
	pc_format "$1" "$DISK_DEV" || die "no file system: $1"
	pc_mount "${2:-$1}" "$DISK_DEV" || die "cannot mount: $1"
}

# run_cut(number, config) - four results
run_cut() {
	local n=$1 config=$2 what="cut $1, $2" worked=1 fails=$KTAP_CNT_FAIL
	start "$config"
	cut "$n" "$config" "${KEEP_PPM[$(draw "$n" 5 ${#KEEP_PPM[@]})]}" || worked=0
	ops=$((ops + $(pc_count "$WB_OUT/load" ops)))
	acks=$((acks + $(pc_count "$WB_OUT/load" acks)))
	check "$what: no error before the cut, and no hang after it" [ "$worked" -eq 1 ]
	check "$what: the journal replays" pc_mount "$config" "$DISK_DEV"
	check "$what: what fsync acknowledged is there, and nothing foreign" pc_verify "$PC_STATE".*
	words=$((words + $(pc_count "$WB_OUT/verify" words)))
	umount_fs "$MNT" "${POLITE[@]}"
	check "$what: fsck finds nothing" fsck_clean "$(pc_fs "$config")" "$DISK_DEV"
	if [ "$KTAP_CNT_FAIL" -gt "$fails" ]; then
		note "seed ${OPT[seed]}, repeat with: ${0##*/} --config=${OPT[config]} --cuts=${OPT[cuts]} --seed=${OPT[seed]}"
	else
		rm -f "$PC_STATE".*
	fi
}

# found(keys...) - did the last pc_verify find any of them?
found() {
	local key
	for key in "$@"; do
		[ "$(pc_count "$WB_OUT/verify" "$key")" -eq 0 ] || return 0
	done
	return 1
}

# A disk that says it has no cache gets no flushes.
no_flushes() {
	start plain:delalloc
	echo "write through" > "/sys/block/$DISK_NAME/queue/write_cache"
	cut "$1" "without flushes" 0
	pc_mount plain:delalloc "$DISK_DEV" && ! pc_verify "$PC_STATE".* > "$WB_OUT/expected" &&
		found lost missing size
	local ret=$?
	umount_fs "$MNT" "${POLITE[@]}"
	rm -f "$PC_STATE".*
	return "$ret"
}

# Blocks belong to files before their data is written.
data_writeback() {
	local n=$1 bad=1
	set_dirty writeback_centisecs 0
	for ((; n < $1 + BROKEN_TRIES && bad; n++)); do
		start plain:nodelalloc plain:nodelalloc,data=writeback,dioread_lock
		cut "$n" "data=writeback" 0
		pc_mount plain:nodelalloc "$DISK_DEV" && ! pc_verify "$PC_STATE".* > "$WB_OUT/expected" &&
			found stale foreign garbage && bad=0
		umount_fs "$MNT" "${POLITE[@]}"
		rm -f "$PC_STATE".*
	done
	set_dirty writeback_centisecs "$PC_FLUSH_CENTISECS"
	return "$bad"
}

wb_begin
need_wbdisk
pc_need
configs=("${CONFIGS[@]}")
[ "${OPT[config]}" = all ] || configs=("${OPT[config]}")
ktap_set_plan $((4 * OPT[cuts] + 3))
ops=0 acks=0 words=0
disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1 link_mbps=200
ext4_stale $DISK_MIB
for ((n = 0; n < OPT[cuts]; n++)); do
	run_cut "$n" "${configs[n % ${#configs[@]}]}"
done
metric powercut_cuts "${OPT[cuts]}"
metric powercut_ops "$ops"
metric powercut_acks "$acks"
metric powercut_bytes $((words * 8))
check "a disk that gets no flushes fails the test" no_flushes "$n"
check "data=writeback fails the test" data_writeback $((n + 1))
disk_teardown
check_dmesg
ktap_finished
