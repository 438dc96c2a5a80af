#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Random operations on three files (ext4_model) against a model in memory, beside
# a flusher that has something to do all the time.  For several formats and sets
# of mount options; every second time the file system is so small that it fills up.
# Before that, a range is zeroed whose blocks begin before the end of the file and
# behind it, which grows the file: what was there is gone, and what is written there
# next is still there after fsync.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"

readonly DISK_MIB=96
# Three files of 6 MiB do not fit in that, less the journal and what is allocated.
readonly SMALL_MIB=12 SMALL_FILLER=4m
readonly BACKGROUND=$((1 << 20)) FLUSH_CENTISECS=2
readonly SHORT_FORMATS=(plain 1k quota)
readonly ALL_FORMATS=(plain 1k quota bigalloc inline_data fast_commit nojournal no_extents)
readonly MOUNTS=("${EXT4_MOUNTS[@]}")

about title \
	"random operations on ext4 against a model in memory, with several file system formats"
about replays "none: looks for lost, stale or misplaced data"
about wall 60
about programs mke2fs e2fsck xfs_io od
about kernel QUOTA QFMT_V2
axis ops 1000 1..999999 "operations for each format and set of mount options"
axis formats short 'short|all' "formats: plain, 1k and quota, or all"
case_parse "$@"

# run_model(format, mount options, seed) - two results
run_model() {
	local format=$1 options=$2 seed=$3 mkfs log=$WB_OUT/model_$1_${2//,/_} mib=$DISK_MIB verdict=check
	read -ra mkfs <<< "${EXT4_FORMAT[$format]}"
	((seed % 2)) || mib=$SMALL_MIB
	disk_raw fifo capacity_mib="$mib"
	ext4_stale "$mib"
	[ "$format" = nojournal ] || mkfs+=(-J size=4)
	ext4_format -m 0 "${mkfs[@]}" > "$log" 2>&1 || { note_file "$log"; die "mke2fs"; }
	ext4_mount "$options" || die "cannot mount with $options"
	[ "$mib" -ne $SMALL_MIB ] || ext4_falloc "$MNT/filler" 0 $SMALL_FILLER || true
	[ "$format" != inline_data ] || [ "$of_series" -eq 1 ] || verdict=may_fail
	$verdict "$format, $options, $mib MiB: files are what the model says" run_ops "$seed" "$log"
	umount_fs "$MNT"
	check "$format, $options, $mib MiB: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# may_fail(description, cmd...) - one result: with inline_data a small file can come
# back with other content on a kernel without the series (ext4-inline)
may_fail() {
	local description=$1
	shift
	if "$@"; then
		ktap_test_pass "$description"
	else
		skip_test "$description" "known defect of inline_data, which the series mends"
	fi
}

# run_zero(mount options) - two results
run_zero() {
	local f
	disk_raw fifo capacity_mib=$DISK_MIB
	ext4_new "$1"
	f=$MNT/file
	# The end is in the second block.
	xfs_io -f -c "pwrite -q -S 0x61 0 5000" -c fsync -c "fzero 4096 8192" "$f" || die "xfs_io"
	check "$1: zeroes replace the last block of a file that grows" holds_bytes "$f" 000
	xfs_io -c "pwrite -q -S 0x62 4096 4096" -c fsync "$f" || die "xfs_io"
	ext4_remount "$1" || die "cannot mount with $1"
	check "$1: what is written there then survives fsync" holds_bytes "$f" 142
	ext4_end
}

# holds_bytes(file, octal) - the second block has nothing else
holds_bytes() {
	[ "$(od -A n -t o1 -j 4096 -N 4096 -v "$1" | tr -s ' ' '\n' | sort -u | tail -n +2)" = "$2" ]
}

run_ops() {
	"$WB_DIR/ext4_model" "$MNT" "$1" "${OPT[ops]}" > "$2" 2>&1
	local ret=$?
	note_file "$2"
	return "$ret"
}

wb_begin
need_wbdisk
[ -x "$WB_DIR/ext4_model" ] || skip_all "ext4_model is not built"
if ! { set_dirty background_bytes "$BACKGROUND" && set_dirty expire_centisecs "$FLUSH_CENTISECS" &&
       set_dirty writeback_centisecs "$FLUSH_CENTISECS"; }; then
	die "cannot set vm.dirty_*"
fi
formats=("${SHORT_FORMATS[@]}")
[ "${OPT[formats]}" = short ] || formats=("${ALL_FORMATS[@]}")
ktap_set_plan $((2 * (${#formats[@]} + 1) * ${#MOUNTS[@]} + 1))
for options in "${MOUNTS[@]}"; do
	run_zero "$options"
done
of_series=0
! ext4_of_series || of_series=1
n=${OPT[seed]}
for format in "${formats[@]}"; do
	for options in "${MOUNTS[@]}"; do
		run_model "$format" "$options" "$n"
		n=$((n + 1))
	done
done
check_dmesg
ktap_finished
