#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What a buffered write to ext4 costs without delayed allocation, against delayed
# allocation in the same run:
#	10M	dd's speed with writes of 10 MiB and a final fsync
#	1M 64K 4K	CPU time of everything, from the first write to the end of fsync,
#		per page of a new file
#	over	the same of writes of 1 MiB that overwrite it
# With nodelalloc,dioread_nolock write() allocates alloc_ahead_kb at once; the same
# with 0 allocates page by page. The disk's writeback is not throttled: what waits for
# its turn merges less, and how much less differs from one pass to the next by more than
# these bounds allow (wbt-cost measures what throttling costs).

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/fio.sh
. "$WB_DIR/lib/fio.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"

readonly PAGE=4096
readonly TICKS_PER_S=100	# USER_HZ of /proc/stat
readonly DISK_MIB=4096
# CPU time comes in ticks of 10 ms: one pass has 40, too few for a bound of 5 %.
readonly OVER_PASSES=4
readonly MBPS_RATIO=0.95	# at least, 10M
# At most, against delalloc; "4K" against alloc_ahead_kb=0.
declare -Ar COST_RATIO=([1M]=1.05 [64K]=1.2 [over]=1.05 [4K]=1.02)

about title \
	"CPU time and speed of buffered writes to ext4 without delayed allocation, against with it"
about replays "none: tests allocation ahead of the copy; skips on a kernel without it"
about wall 120
about programs awk dd mke2fs e2fsck
about series 6.12
about not_fast "where computing costs nothing"
axis mib 256 '1..16384 MiB' "size of each file written"
axis_disk_set
measures cpu_ns_per_page_X ns lower \
	"virtual CPU time (1 ns = 1 instruction) per 4-KiB page written"
measures write_mbps_X MB/s higher "dd's own figure"
case_parse "$@"

declare -A NS MBPS

# cost(key, block size, passes, [dd's conv=]) - write MNT/file so many times, set
# NS[key], and MBPS[key] of the last one
cost() {
	local key=$1 passes=$3 i cpu0 cpu1 start end log=$WB_OUT/dd_$1.log
	sync
	cpu_snapshot cpu0
	now_us start
	for ((i = 0; i < passes; i++)); do
		dd if=/dev/zero of="$MNT/file" bs="$2" count="${OPT[mib]}M" iflag=count_bytes \
			conv="fsync${4:+,$4}" 2> "$log" || return
	done
	now_us end
	cpu_snapshot cpu1
	MBPS[$key]=$(dd_mbps "$log")
	# Idle time is exact, busy time is sampled by the tick: take the difference.
	NS[$key]=$(awk -v c="$cpu0 $cpu1" -v us=$((end - start)) -v pages=$((passes * OPT[mib] * 1048576 / PAGE)) \
		-v ncpu="$(grep -c ^processor /proc/cpuinfo)" -v hz="$TICKS_PER_S" '
		BEGIN { split(c, t, " "); printf "%.6g", (us * 1e3 * ncpu - (t[3] - t[1]) * 1e9 / hz) / pages }')
}

# run_mount(suffix, options, alloc_ahead_kb or "", sizes...)
run_mount() {
	local suffix=$1 options=$2 kb=$3 size pairs
	shift 3
	IFS=, read -ra pairs <<< "${OPT[disk-set]}"
	disk_raw fifo capacity_mib=$DISK_MIB "${pairs[@]}"
	set_value "/sys/block/$DISK_NAME/queue/wbt_lat_usec" 0 || die "no throttling of writeback"
	ext4_new "$options"
	[ -z "$kb" ] || set_value "/sys/fs/ext4/$DISK_NAME/alloc_ahead_kb" "$kb" || die "no alloc_ahead_kb"
	for size in "$@"; do
		if [ "$size" = over ]; then
			cost "over_$suffix" 1M $OVER_PASSES notrunc || die "dd fails"
		else
			rm -f "$MNT/file"
			cost "${size}_$suffix" "$size" 1 || die "dd fails"
		fi
		metric "cpu_ns_per_page_${size}_$suffix" "${NS[${size}_$suffix]}"
		[ "$size" != 10M ] || metric "write_mbps_${size}_$suffix" "${MBPS[10M_$suffix]}"
	done
	ext4_end
}

wb_begin
need_wbdisk
ext4_need alloc_ahead_kb "this kernel's ext4 allocates page by page without delalloc"
ktap_set_plan 6
run_mount delalloc delalloc "" 10M 1M over 64K 4K
options=nodelalloc,dioread_nolock
suffix=${options//,/_}
run_mount "$suffix" "$options" "" 10M 1M over 64K 4K
run_mount "${suffix}_ahead0" "$options" 0 4K
check "$options: 10M: speed against delalloc" \
	holds "${MBPS[10M_$suffix]} / ${MBPS[10M_delalloc]} >= $MBPS_RATIO"
for size in 1M 64K over; do
	check "$options: $size: CPU time against delalloc" \
		holds "${NS[${size}_$suffix]} / ${NS[${size}_delalloc]} <= ${COST_RATIO[$size]}"
done
check "$options: 4K: no worse than page by page" \
	holds "${NS[4K_$suffix]} / ${NS[4K_${suffix}_ahead0]} <= ${COST_RATIO[4K]}"
check_dmesg
ktap_finished
