#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The shape of what ext4 does with nodelalloc,dioread_nolock:
#	append	a file is appended to while it is written back: no extent is split at
#		the end of I/O, few are left, and requests are large; also with writes
#		of 4 KiB, and with blocks smaller than a page
#	blocks	st_blocks does not change between write and sync: new data in
#		sequence, and the pattern of xfstests generic/422: overwrite, extend,
#		fallocate and overwrite, O_DIRECT over dirty pages
#	mount	/proc/mounts tells the option, remounting changes it with dirty files
#	killed	SIGKILL ends a large write into blocks that fallocate put behind the end
#		of the file: they stay, with and without dioread_nolock

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"
# shellcheck source=../lib/tracefs.sh
. "$WB_DIR/lib/tracefs.sh"

readonly DISK_MIB=2048
readonly OPTIONS=nodelalloc,dioread_nolock
readonly BACKGROUND=$((16 << 20))	# bytes: write-back beside the append
# An extent holds 128 MiB, but of a growing file the allocator places no more than
# 8 MiB at once, not always behind the last.
readonly PIECE_MIB=8 EXTENTS_MORE=2
readonly BIO_KIB=1024
# A small file is written back in few pieces, and the last is no full one.
readonly TRACE_KIB=8192
readonly SMALL_MIB=32 SMALL_BIO_KIB=512
# A write that takes seconds, for want of memory that may be dirty.
readonly TREE_SECTORS=8	# a block of 4 KiB
readonly KILLED_MIB=64 KILLED_MBPS=10 KILLED_DIRTY=$((8 << 20))

about title \
	"splits at the end of I/O, extents, st_blocks and remounts of ext4 with nodelalloc,dioread_nolock"
about replays "none: tests appends beside writeback; skips on a kernel that does not count splits"
about wall 30
about programs awk dd filefrag mke2fs e2fsck xfs_io sha256sum
about kernel FTRACE
about series 6.12
axis mib 256 '1..9999 MiB' "size of the file appended to"
measures 'shape_endio_splits_X, shape_extents_X' count lower \
	"extents split at the end of I/O, and left, after an append beside writeback"
measures shape_conversions_X count - "extents that became written at the end of I/O"
measures shape_bio_kib_X KiB higher "mean size of writeback's bios"
case_parse "$@"

# fresh([options of mke2fs...])
fresh() {
	disk_raw fifo capacity_mib=$DISK_MIB
	ext4_new "$OPTIONS" "$@"
}

st_blocks() {
	stat -c %b "$1"
}

# run_append(name, mib, bs, [options of mke2fs...]) - four results
run_append() {
	local name=$1 mib=$2 bs=$3 extents conversions splits kib trace=$TRACING/instances/shape dev
	shift 3
	fresh "$@"
	dev=$(mountpoint -d "$MNT")
	dev=$((${dev%:*} << 20 | ${dev#*:}))
	trace_instance shape $TRACE_KIB || die "no tracing"
	# 0x10 is EXT4_GET_BLOCKS_CONVERT.
	trace_event "$trace" ext4/ext4_ext_handle_unwritten_extents "dev == $dev && flags & 0x10"
	trace_event "$trace" ext4/ext4_ext_split_endio "dev == $dev" || die "no such tracepoint"
	trace_event "$trace" block/block_bio_queue "dev == $dev && !(comm ~ \"jbd2*\")"
	set_dirty background_bytes "$BACKGROUND" || die "cannot set vm.dirty_*"
	dd if=/dev/zero of="$MNT/file" bs="$bs" count="${mib}M" iflag=count_bytes status=none
	sync "$MNT/file"
	echo 0 > "$trace/tracing_on"
	conversions=$(grep -c ext4_ext_handle_unwritten_extents: "$trace/trace")
	splits=$(grep -c ext4_ext_split_endio: "$trace/trace")
	# "block_bio_queue: 253,0 W 34816 + 2048 [kworker/u2:1]"
	kib=$(sed -n 's/.*block_bio_queue: [^ ]* W[^ ]* [0-9]* + \([0-9]*\) .*/\1/p' "$trace/trace" |
		awk '{ sum += $1 } END { print NR ? sum / 2 / NR : 0 }')
	trace_remove "$trace"
	extents=$(extents "$MNT/file")
	metric "shape_conversions_$name" "$conversions"
	metric "shape_endio_splits_$name" "$splits"
	metric "shape_bio_kib_$name" "$kib"
	metric "shape_extents_$name" "$extents"
	check "append, $name: blocks were unwritten until their I/O" [ "$conversions" -gt 0 ]
	check "append, $name: no split at the end of I/O" [ "$splits" -eq 0 ]
	check "append, $name: few extents" [ "$extents" -le $((mib / PIECE_MIB + EXTENTS_MORE)) ]
	check "append, $name: large bios" \
		holds "$kib >= $([ "$mib" -gt $SMALL_MIB ] && echo $BIO_KIB || echo $SMALL_BIO_KIB)"
	disk_teardown
}

# same_blocks(description, file) - one result: sync does not change st_blocks, but that
# a block of the extent tree may go, when extents that are written at last are merged
same_blocks() {
	local before after
	before=$(st_blocks "$2")
	sync "$2"
	after=$(st_blocks "$2")
	note "$1: $before sectors, $after after sync"
	check "st_blocks: $1" \
		holds "$before == $after || $before == $after + $TREE_SECTORS"
}

# io(file, commands of xfs_io...)
io() {
	local file=$1 cmd args=()
	shift
	for cmd in "$@"; do
		args+=(-c "$cmd")
	done
	xfs_io -f "${args[@]}" "$file" > "$WB_OUT/xfs_io" 2>&1 || note_file "$WB_OUT/xfs_io"
}

run_blocks() {
	local f
	fresh
	f=$MNT/file
	io "$f" "pwrite -b 1m 0 64m"
	same_blocks "new data in sequence" "$f"
	io "$f" "pwrite -b 64k 0 64m"
	same_blocks "overwrite" "$f"
	io "$f" "pwrite -b 4k 64m 1m"
	same_blocks "extend by pages" "$f"
	io "$f" "falloc -k 65m 16m"
	io "$f" "pwrite -b 64k 65m 8m"
	same_blocks "write into what was allocated behind the end" "$f"
	rm "$f"
	io "$f" "falloc 0 256k" "pwrite 0 256k"
	same_blocks "fallocate, then overwrite all" "$f"
	io "$f" "falloc -k 0 512k" "pwrite 128k 256k"
	same_blocks "fallocate over data, then overwrite and extend" "$f"
	rm "$f"
	io "$f" "pwrite 0 256k"
	xfs_io -d -c "pwrite 128k 64k" "$f" > /dev/null
	same_blocks "O_DIRECT over dirty pages" "$f"
	umount_fs "$MNT"
	check "st_blocks: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# mounted(option) - is it shown?
mounted() {
	grep " $MNT " /proc/mounts | grep -Eq "[ ,]$1[ ,]"
}

# survives(options) - dirty pages of one mode are written back in another
survives() {
	local file=$MNT/remount expect
	head -c 4M /dev/urandom > "$file"
	expect=$(sha256sum < "$file")
	mount -o "remount,$1" "$MNT" || return
	head -c 64K /dev/urandom >> "$MNT/other"
	sync
	umount_fs "$MNT" && ext4_mount "$1" && [ "$expect" = "$(sha256sum < "$file")" ]
}

run_mount() {
	fresh
	check "mount: dioread_nolock is shown" mounted dioread_nolock
	mount -o remount,dioread_lock "$MNT"
	check "mount: gone after a remount with dioread_lock" eval '! mounted dioread_nolock'
	mount -o remount,dioread_nolock "$MNT"
	check "mount: back after another" mounted dioread_nolock
	check "mount: dirty files survive a remount with dioread_lock" survives nodelalloc,dioread_lock
	check "mount: with delalloc" survives delalloc
	check "mount: with nodelalloc,dioread_nolock" survives "$OPTIONS"
	disk_teardown
	disk_raw fifo capacity_mib=64
	ext4_new nodelalloc
	check "mount: not shown if it is only the default" eval '! mounted dioread_nolock'
	disk_teardown
}

# run_killed(options) - one result
run_killed() {
	local file before after size pid
	disk_raw fifo capacity_mib=$DISK_MIB link_mbps=$KILLED_MBPS
	ext4_new "$1"
	if ! { set_dirty background_bytes $((KILLED_DIRTY / 2)) && set_dirty bytes "$KILLED_DIRTY"; }; then
		die "cannot set vm.dirty_*"
	fi
	file=$MNT/file
	ext4_falloc "$file" 0 "${KILLED_MIB}m" || die "cannot fallocate $file"
	before=$(st_blocks "$file")
	dd if=/dev/zero of="$file" bs="${KILLED_MIB}M" count=1 conv=notrunc status=none &
	pid=$!
	loop_until [ -s "$file" ]
	{ kill -KILL "$pid" && wait "$pid"; } 2> /dev/null
	after=$(st_blocks "$file") size=$(stat -c %s "$file")
	note "$1: killed at $size bytes: $before sectors, then $after"
	check "killed, $1: what fallocate allocated stays" \
		holds "$size < $KILLED_MIB * 1048576 && $after >= $before"
	disk_teardown
}

wb_begin
need_wbdisk
ext4_need alloc_ahead_kb "this kernel's ext4 allocates page by page without delalloc"
[ -d "$TRACING/events/ext4/ext4_ext_split_endio" ] || skip_all "this kernel's ext4 does not trace splits"
ktap_set_plan $((3 * 4 + 8 + 7 + 2 + 1))
run_append 1M "${OPT[mib]}" 1M
run_append 4K "$SMALL_MIB" 4K
run_append 1K_blocks "$SMALL_MIB" 1M -b 1024
run_blocks
run_mount
run_killed nodelalloc
run_killed "$OPTIONS"
check_dmesg
ktap_finished
