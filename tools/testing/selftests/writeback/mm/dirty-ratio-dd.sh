#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The table of SUSE TID 7015931: dd of 30 % of dirtyable memory (there: of RAM, most
# of which was dirtyable) with vm.dirty_ratio 40 and 20, as is and with
# conv=fdatasync.  Published: 313 and 247 MB/s, with fdatasync 119 and 115 MB/s.
# With a background ratio of 10 %, A dirtyable memory, B bytes written at M into
# the page cache, R the disk's speed, F = (limit + background) / 2:
#
# - The disk idles until 10 % of A are dirty.  A writer that is never throttled
#   takes B / M and leaves B - R (B - 10 % A) / M dirty: it is never throttled
#   if that is below F, which is 25 % of A for ratio 40 and 15 % for ratio 20.
# - A throttled writer ends with d dirty pages, F <= d <= limit, after
#   t = 10 % A / M + (B - d) / R.
#
# M and R are measured first, and M once more beside the flusher, which takes CPU
# time from dd.  The modelled disk is set to R = 0.45 of the first M, which puts the
# unthrottled rest between the two F; a disk that cannot be set may miss that.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/fio.sh
. "$WB_DIR/lib/fio.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"

readonly FILE_SHARE=0.30	# of dirtyable memory
readonly SPEED_RATIO=0.45	# R / M
readonly BACKGROUND=10		# dirty_background_ratio, percent
readonly SLACK=0.15		# of the derived times: neither M nor R is constant
readonly FDATASYNC_SLACK=0.05	# published: 3.1 %
readonly TICK_S=0.004		# a planned pause may last a tick longer, HZ >= 250

about title "apparent and fdatasync speed of dd with vm.dirty_ratio 40 and 20"
about replays "SUSE TID 7015931: dd 313 against 247 MB/s, with fdatasync 119 against 115"
about wall 80
about programs awk dd
about kernel FTRACE
about not_fast "where memory has no speed to compare the disk's with"
axis_disk fifo
axis fs xfs 'xfs|ext4' "file system of the disk"
measures 'memory_mbps, beside_mbps, disk_mbps' MB/s - \
	"speed of the page cache, alone and beside the flusher, and of the disk, measured first"
measures 'file_bytes, dirtyable_bytes' bytes - \
	"file written; dirtyable memory, which ratios are of"
measures write_mbps_X MB/s higher "dd's own figure at dirty ratio X, plain or with fdatasync"
measures throttled_s_R s - "time the writer slept in balance_dirty_pages at dirty ratio R"
measures counted_s_R s - "what the kernel counts of these sleeps in /proc/vmstat"
case_parse "$@"

declare -A SECONDS_OF THROTTLED_MS SLEEPS COUNTED_US

# run_dd(label, [conv]) - write MIB into the page cache; SECONDS_OF[label],
# THROTTLED_MS[label], and COUNTED_US[label] if the kernel counts such sleeps
run_dd() {
	local label=$1 log=$WB_OUT/dd_$1.log before
	drop_file "$MNT/file"
	throttle_trace_clear
	sampler_start "$WB_OUT/dirty_$label.csv"
	before=$(throttled_us /proc/vmstat)
	dd if=/dev/zero of="$MNT/file" bs=1M count="$MIB" ${2:+conv="$2"} 2> "$log" ||
		die "dd: $(tail -n 1 "$log")"
	COUNTED_US[$label]=${before:+$(($(throttled_us /proc/vmstat) - before))}
	sampler_stop
	SECONDS_OF[$label]=$(dd_rate "$log" | awk '{ print $2 }')
	read -r "THROTTLED_MS[$label]" "SLEEPS[$label]" \
		<<< "$(throttle_trace_sum "$WB_OUT/throttle_$label.txt")"
}

# measure() - M and R in MB/s
measure() {
	local start end
	# Above B: nothing is written back, nobody waits.
	set_limits ratio 89 90
	run_dd memory
	M=$(dd_mbps "$WB_OUT/dd_memory.log")
	if [ "$DISK_KIND" = wbdisk ] && [[ ${OPT[disk-set]} != *link_mbps* ]]; then
		wbdisk_set test link_mbps "$(awk -v m="$M" -v r="$SPEED_RATIO" 'BEGIN { printf "%.0f", m * r }')" ||
			die "cannot change the disk's speed"
	fi
	now_us start
	sync
	now_us end
	R=$(calc "$BYTES / ($end - $start)")
	metric memory_mbps "$M"
	# The flusher runs as below, and nobody waits.
	set_limits ratio "$BACKGROUND" 90
	run_dd beside
	M=$(dd_mbps "$WB_OUT/dd_beside.log")
	metric beside_mbps "$M"
	metric disk_mbps "$R"
	metric file_bytes "$BYTES"
	metric dirtyable_bytes "$AVAIL"
}

# derive() - times in seconds, from M, R, BYTES and AVAIL
derive() {
	read -r T_FREE T20_MIN T20_MAX REST F20 F40 <<< "$(awk \
		-v B="$BYTES" -v A="$AVAIL" -v M="$M" -v R="$R" -v bg="$(ratio_factor $BACKGROUND)" \
		-v r20="$(ratio_factor 20)" -v r40="$(ratio_factor 40)" '
		function max(a, b) { return a > b ? a : b }
		BEGIN {
			M *= 1e6; R *= 1e6
			f20 = (r20 + bg) / 2 * A
			f40 = (r40 + bg) / 2 * A
			start = bg * A / M
			free = B / M
			printf "%.6g %.6g %.6g %.6g %.6g %.6g", free,
				max(free, start + (B - r20 * A) / R),
				max(free, start + (B - f20) / R),
				B - R * (B - bg * A) / M, f20, f40
		}')"
	note "derived: unthrottled $T_FREE s, leaving $REST bytes dirty (freerun $F20 at 20 %, $F40 at 40 %)"
	note "derived: with ratio 20 between $T20_MIN and $T20_MAX s"
}

# row(ratio, [conv]) - one line of the published table
row() {
	local label=$1${2:+_$2}
	set_limits ratio "$BACKGROUND" "$1"
	run_dd "$label" "${2:-}"
	metric "write_mbps_$label" "$(calc "$BYTES / ${SECONDS_OF[$label]} / 1e6")"
	[ -n "${2:-}" ] || metric "throttled_s_$label" "$(calc "${THROTTLED_MS[$label]} / 1e3")"
}

wb_begin
[ -x "$WB_DIR/vmstat_sampler" ] || skip_all "needs vmstat_sampler: make"
disk_check
disk_setup "${OPT[fs]}"
dirtyable AVAIL
MIB=$(awk -v a="$AVAIL" -v share="$FILE_SHARE" 'BEGIN { printf "%d", a * share / 1048576 }')
BYTES=$((MIB << 20))
throttle_trace_start "" || skip_all "needs the tracepoint writeback:balance_dirty_pages"
[ "$(($(stat -f -c '%a * %S' "$MNT")))" -gt $((BYTES + BYTES / 8)) ] ||
	skip_all "needs $((MIB + MIB / 8)) MiB below $MNT"

ktap_set_plan 9
measure
derive
row 40
row 20
row 40 fdatasync
row 20 fdatasync
for label in 40 20 40_fdatasync 20_fdatasync; do
	note "$label: ${SECONDS_OF[$label]} s, slept ${THROTTLED_MS[$label]} ms in ${SLEEPS[$label]} pauses"
done

if holds "$F20 < $REST && $REST < $F40"; then
	check "ratio 40: dd runs at the speed of memory" \
		holds "${SECONDS_OF[40]} <= $T_FREE * (1 + $SLACK) && ${SECONDS_OF[40]} >= $T_FREE * (1 - $SLACK)"
	check "ratio 20: dd is slowed as much as derived" \
		holds "${SECONDS_OF[20]} <= $T20_MAX * (1 + $SLACK) && ${SECONDS_OF[20]} >= $T20_MIN * (1 - $SLACK)"
	check "ratio 40 looks faster than ratio 20" holds "${SECONDS_OF[40]} < ${SECONDS_OF[20]}"
	check "ratio 40: dd never sleeps for dirty pages" [ "${SLEEPS[40]}" -eq 0 ]
	# Than with ratio 40: there the flusher takes its CPU time, too, unlike in measure().
	late=$(calc "${SECONDS_OF[20]} - ${SECONDS_OF[40]}")
	check "ratio 20: dd sleeps as long as it is late" holds \
		"${SLEEPS[20]} > 0 && abs($late - ${THROTTLED_MS[20]} / 1e3) <= $SLACK * $late + ${SLEEPS[20]} * $TICK_S"
	if [ -n "${COUNTED_US[20]}" ]; then
		metric counted_s_20 "$(calc "${COUNTED_US[20]} / 1e6")"
		check "ratio 40: the kernel counts no sleep" [ "${COUNTED_US[40]}" -eq 0 ]
		check "ratio 20: the kernel counts what dd is late" \
			holds "abs($late - ${COUNTED_US[20]} / 1e6) <= $SLACK * $late"
	else
		skip_test "ratio 40: the kernel counts no sleep" "/proc/vmstat has no dirty_throttle_us"
		skip_test "ratio 20: the kernel counts what dd is late" "/proc/vmstat has no dirty_throttle_us"
	fi
else
	for name in "ratio 40: dd runs at the speed of memory" "ratio 20: dd is slowed as much as derived" \
		    "ratio 40 looks faster than ratio 20" "ratio 40: dd never sleeps for dirty pages" \
		    "ratio 20: dd sleeps as long as it is late" "ratio 40: the kernel counts no sleep" \
		    "ratio 20: the kernel counts what dd is late"; do
		skip_test "$name" "disk speed $R MB/s does not fit memory speed $M MB/s"
	done
fi
check "with fdatasync both ratios are equally fast" holds \
	"abs(${SECONDS_OF[40_fdatasync]} / ${SECONDS_OF[20_fdatasync]} - 1) <= $FDATASYNC_SLACK"
check_dmesg
disk_teardown
ktap_finished
