#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Random changes of names and files on ext4 (ext4_names) until the power is cut, while
# somebody else syncs, memory is short and the disk stands still.  The names are then
# those of one moment, not before the last that fsync acknowledged; files that were not
# changed since hold what was synced, others nothing foreign; and e2fsck finds nothing.
# Rounds are numbered; the seed and the number decide all.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"
# shellcheck source=../lib/work.sh
. "$WB_DIR/lib/work.sh"

readonly DISK_MIB=128
# A round has the next of each, and so all pairs in turn: 3 and 7 have no factor in common.
# shellcheck disable=SC2054 # commas of mount options
readonly MOUNTS=(delalloc nodelalloc,commit=1 delalloc,commit=300)
readonly FORMATS=(
	"" "-b 1024" "-O orphan_file" "-b 1024 -J size=2 -O orphan_file" "-O quota" "-O ^extent,^64bit"
	"-I 1024 -O inline_data"
)

about title "names and files after a power cut in the middle of random changes of both"
about replays "none: looks for lost, stale or misplaced names and data; fails on the stock kernel"
about wall 60
about programs awk e2fsck mke2fs
about series
axis replay kernel 'kernel|e2fsck' "who replays the journal after the cut"
axis rounds 21 1..9999 "how many rounds"
axis first 0 0..9999 "number of the first round"
axis ms 4000 '100..999999 ms' "longest time before the power is cut"
axis journal fast_commit 'fast_commit|plain' "with fast commits, or without"
measures 'names_changes, names_acks, names_fast' count - \
	"changes of names, syncs that returned 0, and fast commits"
measures names_bytes bytes - "data compared afterwards"
case_parse "$@"

# names(command, args...) - of ext4_names; its last line, in "said", has what was counted
names() {
	local ret
	"$WB_DIR/ext4_names" "$1" "$MNT" "$WB_OUT/log" "${@:2}" > "$WB_OUT/names" 2> "$WB_OUT/trace"
	ret=$?
	note_file "$WB_OUT/names"
	said=$(tail -n 1 "$WB_OUT/names")
	return $ret
}

# run_round(number) - three results
run_round() {
	local n=$1 mount=${MOUNTS[$1 % ${#MOUNTS[@]}]} fails=$KTAP_CNT_FAIL what said mkfs there=1 shifts=1
	read -ra mkfs <<< "${FORMATS[n % ${#FORMATS[@]}]}"
	what="round $n, $mount${mkfs[*]:+, ${mkfs[*]}}"
	[ "${OPT[journal]}" = plain ] || mkfs+=(-O fast_commit)
	[[ ${mkfs[*]} != *extent* ]] || shifts=0
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1
	wbdisk_set test cut_keep_ppm $((250000 * $(draw "$n" 1 5)))
	ext4_stale $DISK_MIB
	ext4_new "$mount" -m 0 "${mkfs[@]}"
	check "$what: no error before the cut" names run "$WBDISK_CONFIGFS/test" \
		$((1 + $(draw "$n" 2 1000000))) "${OPT[ms]}" "$shifts"
	commits=$((commits + $(awk '$2 == "commits" { print $1 }' "/proc/fs/ext4/$DISK_NAME/fc_info")))
	if ext4_power_cut "$mount"; then
		names check || there=0
		read -r _ changed _ synced _ compared <<< "$said"
		umount_fs "$MNT"
	else
		note "cannot mount after the cut"
		there=0
	fi
	check "$what: what was synced is there, in its place" [ $there -eq 1 ]
	check "$what: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
	changes=$((changes + ${changed:-0})) acks=$((acks + ${synced:-0})) bytes=$((bytes + ${compared:-0}))
	[ "$KTAP_CNT_FAIL" -eq "$fails" ] ||
		note "repeat with: ${0##*/} --seed=${OPT[seed]} --journal=${OPT[journal]} --ms=${OPT[ms]} --first=$n --rounds=1"
	rm -f "$WB_OUT/log"
}

wb_begin
need_wbdisk
[ -x "$WB_DIR/ext4_names" ] || skip_all "ext4_names is not built"
ktap_set_plan $((3 * OPT[rounds] + 1))
changes=0 acks=0 bytes=0 commits=0
for ((n = OPT[first]; n < OPT[first] + OPT[rounds]; n++)); do
	run_round "$n"
done
metric names_changes "$changes"
metric names_acks "$acks"
metric names_fast "$commits"
metric names_bytes "$bytes"
check_dmesg
ktap_finished
