#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Largest amount of dirty memory under seven settings of vm.dirty_* (the study of
# an OpenStreetMap import on a 128 GB machine, where the curves of Dirty and of
# the limits were drawn): background/limit of 10/20, 5/10, 2/4, 1/2 percent and
# limit/background of 1000/500, 500/250, 100/50 MB.
#
# dd writes more than twice the limit to a slow disk.  With T the limit, BG the
# background limit and D = dirty + writeback pages, all from one sample:
#	B1  max D <= max T * 33/32 + what per-CPU counters and one folio may add
#	B2  max D >= F = (T + BG) / 2, below which nobody is throttled
#	B3  F <= mean D <= T once F was reached
# A ratio is of dirtyable memory, not of all memory, and in steps of 1/4096.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"

readonly ROWS=(10_20 5_10 2_4 1_2 1000mb_500mb 500mb_250mb 100mb_50mb)
readonly LINK_MBPS=150		# slower than any page cache: every row must throttle
# A limit in bytes that is a large part of dirtyable memory ends in reclaim.
readonly MAX_SHARE=3
readonly AVAIL_SLACK=0.10	# dirtyable memory moves with free memory

about title "peak of dirty + writeback pages against the threshold of the same moment, 7 settings"
about replays "OSM import study: peak Dirty for dirty_background/dirty 10/20 % ... 50/100 MB"
about wall 120
about memory 4608
about programs awk dd
axis_disk fifo
axis fs xfs 'xfs|ext4' "file system of the disk"
axis row all "all|$(IFS='|'; echo "${ROWS[*]}")" "one setting of the study, or all"
measures max_dirty_R bytes - "peak of dirty + writeback pages, setting R"
measures thresh_R bytes - "dirty threshold in the sample of that peak"
measures freerun_R bytes - "below it nobody is throttled: (threshold + background)/2"
measures 'dirtyable_bytes, memory_bytes' bytes - \
	"dirtyable memory, which ratios are of; all memory"
case_parse "$@"

# row_settings(row) - sets KIND, BACKGROUND, LIMIT
row_settings() {
	local a=${1%_*} b=${1#*_}
	if [[ $1 = *mb* ]]; then
		KIND=bytes LIMIT=$((${a%mb} * 1000000)) BACKGROUND=$((${b%mb} * 1000000))
	else
		KIND=ratio BACKGROUND=$a LIMIT=$b
	fi
}

# expected_limit() - pages that KIND and LIMIT stand for, largest and smallest
expected_limit() {
	if [ "$KIND" = bytes ]; then
		awk -v b="$LIMIT" -v p="$PAGE" 'BEGIN { n = int((b + p - 1) / p); printf "%.0f %.0f\n", n, n }'
	else
		awk -v a="$AVAIL" -v p="$PAGE" -v f="$(ratio_factor "$LIMIT")" -v s="$AVAIL_SLACK" \
			'BEGIN { n = a / p * f; printf "%.0f %.0f\n", n * (1 - s), n * (1 + s) }'
	fi
}

# run_row(row) - three results
run_row() {
	local row=$1 csv=$WB_OUT/dirty_$1.csv low high pages mib what
	row_settings "$row"
	if [ "$KIND" = bytes ] && ((LIMIT > AVAIL / MAX_SHARE)); then
		for what in "limit is what was set" "dirty memory stays below the bound" "dirty memory stays above freerun"; do
			skip_test "$row: $what" \
				"needs $((LIMIT * MAX_SHARE / 1000000)) MB of dirtyable memory, there are $((AVAIL / 1000000)) MB"
		done
		return
	fi
	drop_file "$MNT/file"
	set_limits "$KIND" "$BACKGROUND" "$LIMIT"
	pages=$(vmstat nr_dirty_threshold)
	mib=$((pages * PAGE * 9 / 4 / 1048576 + 64))

	declare -A S=()
	sampler_start "$csv"
	dd if=/dev/zero of="$MNT/file" bs=1M count="$mib" 2> "$WB_OUT/dd_$row.log" ||
		die "dd: $(tail -n 1 "$WB_OUT/dd_$row.log")"
	sampler_stop
	sampler_summary "$csv" S

	read -r low high <<< "$(expected_limit)"
	check "$row: limit is what was set" holds "${S[limit]} >= $low && ${S[limit]} <= $high"
	metric "max_dirty_$row" "$((S[dirty] * PAGE))"
	metric "thresh_$row" "$((S[limit] * PAGE))"
	metric "freerun_$row" "$((S[freerun] * PAGE))"
	note "$row: $mib MiB written, ${S[samples]} samples, max/limit $(calc "${S[dirty]} / ${S[limit]}"), mean/limit $(calc "${S[mean]} / ${S[limit]}")"
	check "$row: dirty memory stays below the bound" \
		holds "${S[dirty]} <= ${S[max_limit]} * 33 / 32 + $SLACK_PAGES"
	check "$row: dirty memory stays above freerun" \
		holds "${S[dirty]} + $SLACK_PAGES >= ${S[freerun]} && ${S[mean]} + $SLACK_PAGES >= ${S[freerun]} && ${S[mean]} <= ${S[limit]} + $SLACK_PAGES"
}

# knobs() - "ratio bytes background_ratio background_bytes"
knobs() {
	echo "$(< $VM/dirty_ratio) $(< $VM/dirty_bytes) $(< $VM/dirty_background_ratio) $(< $VM/dirty_background_bytes)"
}

# knobs_are(values) - compare and say so
knobs_are() {
	local now
	now=$(knobs)
	[ "$now" = "$1" ] && return 0
	note "ratio, bytes, background_ratio, background_bytes are '$now', not '$1'"
	return 1
}

# Four results: a ratio and its bytes exclude each other
exclusivity() {
	set_limits ratio 10 20
	set_limits bytes 50000000 100000000
	check "bytes clear ratio" knobs_are "0 100000000 0 50000000"
	# Only a change of dirty_ratio counts (the background ratio's handler does not
	# compare), so this must not clear the bytes.
	set_dirty ratio 0
	check "rewriting the same ratio changes nothing" knobs_are "0 100000000 0 50000000"
	set_limits ratio 5 10
	check "ratio clears bytes" knobs_are "10 0 5 0"
	! set_dirty bytes $((2 * PAGE - 1))
	check "less than two pages are refused" knobs_are "10 0 5 0"
}

wb_begin
[ -x "$WB_DIR/vmstat_sampler" ] || skip_all "needs vmstat_sampler: make"
disk_check
case ${OPT[disk-set]} in
*link_mbps*) disk_setup "${OPT[fs]}" ;;
*) disk_setup "${OPT[fs]}" "" "link_mbps=$LINK_MBPS" ;;
esac
rows=("${ROWS[@]}")
[ "${OPT[row]}" = all ] || rows=("${OPT[row]}")
ktap_set_plan $((3 * ${#rows[@]} + 4 + 1))
dirtyable AVAIL
metric dirtyable_bytes "$AVAIL"
metric memory_bytes "$(mem_total)"
for row in "${rows[@]}"; do
	run_row "$row"
done
exclusivity
check_dmesg
disk_teardown
ktap_finished
