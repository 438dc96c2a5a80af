#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What ext4 pays for nodelalloc, with and without dioread_nolock: the report of
# 28 MB/s for cp of a large file under nodelalloc,dioread_nolock (Alibaba Cloud
# Linux 2, a 4.19 kernel).  6.12 ignores dioread_nolock under nodelalloc; what is
# left is the cost of one allocation and one transaction per page.
#
# A test kernel with the parameter ext4.replay_4_19 brings 4.19's behaviour back, where
# every block was an unwritten extent of its own: the set "4.19", which is
# nodelalloc,dioread_nolock with the parameter on.
#
# Per mount option set, on a new file system:
#	dd	--dd-mib by writes of 10 MiB, with conv=fsync: write_mbps_M is dd's own
#		figure and includes the write-back
#	cp	a sparse source of --cp-mib, holes written out as zeros (no source data
#		to read or to keep in memory), then fsync: cp_mbps_M
# cpu_ns_per_page_M is CPU time of everything (dd, flusher, journal, completions)
# per page of the dd, mean_request_kib_M the mean size of the dd's write requests,
# journal included, extents_M filefrag's count for its file.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/fio.sh
. "$WB_DIR/lib/fio.sh"

readonly MOUNTS=(delalloc nodelalloc "nodelalloc,dioread_nolock")
readonly REPLAY=/sys/module/ext4/parameters/replay_4_19
readonly PAGE=4096
readonly TICKS_PER_S=100	# USER_HZ of /proc/stat
readonly PATTERN_MIB=16		# data that is compared, kept by the modelled disk

about title "cp and dd on ext4 with delalloc, nodelalloc, and nodelalloc,dioread_nolock"
about replays "Alibaba Cloud Linux 2: 28 MB/s under nodelalloc,dioread_nolock"
about wall 260
about once dd-mib=160 cp-mib=0
about programs awk dd cp filefrag e2fsck seq
axis_disk fifo
axis mounts all 'all|delalloc|nodelalloc|nodelalloc,dioread_nolock|4.19' \
	"one set of mount options, or all"
axis dd-mib 500 '1..16384 MiB' "size of the file that dd writes"
axis cp-mib 2064 '0..16384 MiB' \
	"size of the file that cp writes, above 2 GiB as published; 0 = no cp"
measures write_mbps_M MB/s higher "dd's own figure, mount options M"
measures cpu_ns_per_page_M ns lower \
	"virtual CPU time (1 ns = 1 instruction) per 4-KiB page written"
measures mean_request_kib_M KiB higher "mean size of the write requests"
measures 'extents_M, cp_extents_M' count lower "extents of the file written"
measures cp_mbps_M MB/s higher "cp of a large file and sync"
case_parse "$@"

# run_dd(suffix) - the dd and its metrics
run_dd() {
	local log=$WB_OUT/dd_$1.log cpu0 cpu1 start end writes0 writes1
	sync
	disk_write_stat writes0
	cpu_snapshot cpu0
	now_us start
	dd if=/dev/zero of="$MNT/dd" bs=10M iflag=count_bytes count="${OPT[dd-mib]}M" conv=fsync \
		2> "$log" || return
	now_us end
	cpu_snapshot cpu1
	disk_write_stat writes1
	metric "write_mbps_$1" "$(dd_mbps "$log")"
	# Idle time is exact, busy time is sampled by the tick: take the difference.
	metric "cpu_ns_per_page_$1" "$(awk -v c="$cpu0 $cpu1" -v us=$((end - start)) \
		-v pages=$((OPT[dd-mib] * 1048576 / PAGE)) -v ncpu="$(grep -c ^processor /proc/cpuinfo)" -v hz="$TICKS_PER_S" '
		BEGIN {
			split(c, t, " ")
			printf "%.6g", (us * 1e3 * ncpu - (t[3] - t[1]) * 1e9 / hz) / pages
		}')"
	[ -z "$DISK_NAME" ] || metric "mean_request_kib_$1" "$(awk -v w="$writes0 $writes1" '
		BEGIN { split(w, s, " "); printf "%.6g", (s[4] - s[2]) / 2 / (s[3] - s[1]) }')"
	metric "extents_$1" "$(extents "$MNT/dd")"
	[ "$(stat -c %s "$MNT/dd")" -eq $((OPT[dd-mib] << 20)) ]
}

# run_cp(suffix)
run_cp() {
	local start end
	truncate -s "${OPT[cp-mib]}M" "$MNT/source" || return
	sync
	now_us start
	cp --sparse=never --reflink=never "$MNT/source" "$MNT/copy" && sync "$MNT/copy" || return
	now_us end
	metric "cp_mbps_$1" "$(calc "${OPT[cp-mib]} * 1048576 / ($end - $start)")"
	metric "cp_extents_$1" "$(extents "$MNT/copy")"
	[ "$(stat -c %s "$MNT/copy")" -eq $((OPT[cp-mib] << 20)) ] &&
		[ "$(stat -c %b "$MNT/copy")" -ge $((OPT[cp-mib] << 11)) ]
}

# pattern(mib, word) - data that differs from page to page
pattern() {
	seq -f "$2 %0253.0f" $(($1 * 1048576 / 256)) | head -c $(($1 << 20))
}

# data_survives(options) - appended, overwritten and hole-filled data is read back
data_survives() {
	local file=$MNT/pattern expect got
	pattern "$PATTERN_MIB" a > "$WB_OUT/expect" &&
		pattern 1 b | dd of="$WB_OUT/expect" bs=1M seek=3 conv=notrunc status=none
	head -c $((5 << 20)) "$WB_OUT/expect" > "$file" &&
		tail -c +$(((5 << 20) + 1)) "$WB_OUT/expect" |
			dd of="$file" bs=64K iflag=fullblock oflag=append conv=notrunc status=none || return
	sync "$file"
	pattern 1 b | dd of="$file" bs=4K iflag=fullblock seek=$((3 * 256)) conv=notrunc,fsync status=none || return
	umount_fs "$MNT" && mount_fs ext4 "$DISK_DEV" "$MNT" "$1" || return
	expect=$(sha256sum < "$WB_OUT/expect")
	got=$(sha256sum < "$file")
	rm -f "$WB_OUT/expect"
	[ "$expect" = "$got" ]
}

# run_mount(options) - four results; 4.19: see the top
run_mount() {
	local options=$1 suffix=${1//[,.]/_}
	if [ "$options" = 4.19 ]; then
		echo 1 > "$REPLAY"
		options=nodelalloc,dioread_nolock
	fi
	disk_setup ext4 "$options"
	grep " $MNT " /proc/mounts | sed 's/^/# mounted: /'
	check "$1: dd writes its file" run_dd "$suffix"
	rm -f "$MNT/dd"
	if [ "${OPT[cp-mib]}" -gt 0 ]; then
		check "$1: cp writes its file" run_cp "$suffix"
		rm -f "$MNT/source" "$MNT/copy"
	else
		skip_test "$1: cp writes its file" "--cp-mib=0"
	fi
	check "$1: data is read back" data_survives "$options"
	umount_fs "$MNT"
	check "$1: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
	[ "$1" != 4.19 ] || echo 0 > "$REPLAY"
}

wb_begin
[ -z "${OPT[dir]}" ] || skip_all "mounts with its own options: use --disk, not --dir"
disk_check
mounts=("${MOUNTS[@]}")
[ ! -e "$REPLAY" ] || mounts+=(4.19)
[ "${OPT[mounts]}" = all ] || mounts=("${OPT[mounts]}")
[ "${OPT[mounts]}" != 4.19 ] || [ -e "$REPLAY" ] || skip_all "needs the test kernel with ext4.replay_4_19"
ktap_set_plan $((4 * ${#mounts[@]} + 1))
for options in "${mounts[@]}"; do
	run_mount "$options"
done
check_dmesg
ktap_finished
