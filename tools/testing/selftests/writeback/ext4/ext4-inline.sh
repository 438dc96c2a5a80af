#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Small files that leave the inode (inline_data): the same operations on ext4 and on
# tmpfs must give the same file, also when the page cache and the journal are gone.
#
#	again	what fallocate moved to a block is overwritten
#	mapped	what a write through mmap moved to a block is overwritten with write()
#	longer	what truncate moved to a block is overwritten
#	emptied	grows, is truncated to 0 before writeback, then fallocate
#	cut	grows, is truncated to what the inode could hold, then written to
#	append	the same, then continued
#	full	grows, and goes on when too few blocks are free for delayed allocation
#	lack	no block is free: write, fallocate, mmap and truncate fail, the file stays
#		as it is, and the file system has no error
#	power	synced, grows, its pages are sent to the disk, an empty file is synced,
#		the power is cut: what was synced must be there
#	fast	with fast_commit: synced, grows, synced again, the power is cut
#	write, fallocate, mmap	with fast_commit: each moves the file to a block while its
#		fsync waits for the data of another file, the power is cut: what was
#		synced must be there
#	beside	with fast_commit: is overwritten and synced while the fsync of another file waits
#		for the data of a third, the power is cut: what was synced must be there
#	punched	synced, grows, and is punched while the commit waits for the data of another
#		file, the power is cut: no old data, and what was synced or zeros
#	truncated	the same, to nothing, just before the commit begins to send data
#	nojournal	synced, grows, the inode is on the disk and the data is not, the power
#		is cut: no old data
#	path	grows with truncate(2), and nobody opened it since the mount

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"

readonly DISK_MIB=64
# Less than ext4 wants to see free for delayed allocation: 4 batches of 32 per CPU.
readonly LEFT_BLOCKS=64
readonly REFERENCE=/mnt/reference
readonly SCENARIOS=(again mapped longer emptied cut append full lack power fast write fallocate mmap beside path)
# Longer than the test needs; ended by hand.
readonly STALL_MS=60000
# Where a file that grows need not show what its block had before, without a journal
readonly NOLOCK=(delalloc "nodelalloc,dioread_nolock")
readonly MOUNTS=("${EXT4_MOUNTS[@]}" data=journal data=writeback)

about title \
	"files that leave the inode (inline_data), with what was written before and after compared"
about replays "none: fails on the stock kernel, where old content comes back"
about programs mke2fs e2fsck xfs_io cmp
about series
case_parse "$@"

# Options of mke2fs that a scenario needs beside inline_data
readonly -A FEATURES=(
	[fast]=",fast_commit" [write]=",fast_commit" [fallocate]=",fast_commit" [mmap]=",fast_commit"
	[beside]=",fast_commit"
)

# wrong(what) - the result of this scenario is a failure
wrong() {
	note "$1"
	WRONG=1
}

# io(command of xfs_io...) - on $DIR/file, in one process
io() {
	local args=() command
	for command; do
		args+=(-c "$command")
	done
	xfs_io -f "${args[@]}" "$DIR/file" > "$WB_OUT/xfs_io" 2>&1 || note_file "$WB_OUT/xfs_io"
}

# Operations on $DIR/file, where "on_ext4" is for what must not change the file.

on_ext4() {
	[ "$DIR" = "$REFERENCE" ] || "$@"
}

op_again() {
	io "pwrite -S 0x11 0 20" fsync "falloc 0 64k" "pwrite -S 0x22 0 20" fsync
}

op_mapped() {
	io "pwrite -S 0x11 0 20" "mmap 0 4096" "mwrite -S 0x22 0 20" "msync -s" munmap \
		"pwrite -S 0x33 0 20" fsync
}

op_longer() {
	io "pwrite -S 0x11 0 20" "truncate 4096" "pwrite -S 0x33 0 20" fsync
}

op_emptied() {
	io "pwrite -S 0x11 0 20" "pwrite -S 0x22 0 4096" "truncate 0" "falloc 0 64k" \
		"pwrite -S 0x33 0 4096" fsync
}

op_cut() {
	io "pwrite -S 0x11 0 100" "pwrite -S 0x22 0 4096" "truncate 50" "pwrite -S 0x33 10 20" fsync
}

op_append() {
	io "pwrite -S 0x11 0 100" "pwrite -S 0x22 0 4096" "truncate 50" "pwrite -S 0x33 50 8000" fsync
}

op_full() {
	io "pwrite -S 0x11 0 20" "pwrite -S 0x22 0 4096"
	on_ext4 leave_blocks
	io "pwrite -S 0x33 8192 4096" fsync
}

op_lack() {
	io "pwrite -S 0x11 0 100" fsync
	on_ext4 no_room
}

op_path() {
	io "pwrite -S 0x11 0 20" fsync
	on_ext4 ext4_remount "$MOUNT"
	"$WB_DIR/fs_blocks" truncate "$DIR/file" 5000 || wrong "cannot truncate"
	io "pwrite -S 0x33 4096 100" fsync
}

op_power() {
	io "pwrite -S 0x11 0 20" fsync
	on_ext4 grow_and_cut
}

op_fast() {
	io "pwrite -S 0x11 0 20" fsync
	on_ext4 sync -f "$MNT"
	io "pwrite -S 0x22 20 8000" fsync
	on_ext4 cut_power
}

op_write() {
	during "pwrite -S 0x33 20 400"
}

op_fallocate() {
	during "falloc -k 8k 4k"
}

op_mmap() {
	during "mmap 0 4096" "mwrite -S 0x22 0 20"
}

op_beside() {
	io "pwrite -S 0x11 0 20"
	on_ext4 bulk 4k
	on_ext4 sync -f "$MNT"
	on_ext4 bulk 1m
	on_ext4 stand_still other
	io "pwrite -S 0x22 0 20"
	on_ext4 sync_beside
}

# during(command of xfs_io...) - moves the file to a block while it is synced
during() {
	io "pwrite -S 0x11 0 20"
	on_ext4 bulk 4k
	on_ext4 sync -f "$MNT"
	on_ext4 bulk 1m
	io "pwrite -S 0x22 0 20"
	on_ext4 move_and_cut "$@"
}

# bulk(size) - is written to another file
bulk() {
	xfs_io -f -c "pwrite -b 1m 0 $1" "$MNT/bulk" > /dev/null
}

# leave_blocks() - all but LEFT_BLOCKS of the free blocks are taken
leave_blocks() {
	local free
	echo 0 > "/sys/fs/ext4/$DISK_NAME/reserved_clusters"
	free=$(stat -f -c %f "$MNT")
	ext4_falloc "$MNT/filler" 0 $(((free - LEFT_BLOCKS) * 4096)) || wrong "cannot take blocks"
}

# no_room() - what needs a block fails, each way
no_room() {
	local command
	ext4_fill || wrong "cannot fill the disk"
	for command in "pwrite -S 0x22 100 8000" "falloc 0 64k" "mwrite -S 0x22 0 100" "truncate 8000"; do
		(xfs_io -c "mmap 0 4096" -c "$command" "$MNT/file" > "$WB_OUT/xfs_io" 2>&1)
		# A fault without a block is SIGBUS; of the others there are only messages.
		[ $? -gt 128 ] || grep -q "No space left" "$WB_OUT/xfs_io" || wrong "$command: done without a free block"
	done 2> /dev/null
	[ "$(ext4_attr errors_count)" -eq 0 ] || wrong "the file system has an error"
}

# cut_power() - off and on; an empty file system if what is there cannot be mounted
cut_power() {
	ext4_power_cut "$MOUNT" && return
	wrong "cannot mount after the cut"
	ext4_new "$MOUNT"
}

# grow_and_cut() - power fails between the commit and the next one.  Behind the pages
# of another file, those of this one are still on their way when the commit begins.
grow_and_cut() {
	echo 0 > "/sys/block/$DISK_NAME/queue/wbt_lat_usec"
	bulk 32m
	io "pwrite -S 0x22 20 8000"
	xfs_io -c "sync_range -w 0 32m" "$MNT/bulk"
	xfs_io -c "sync_range -w 0 8020" "$MNT/file"
	xfs_io -f -c fsync "$MNT/empty"
	cut_power
	note "after the cut: $(stat -c %s "$MNT/file") bytes"
	truncate -s 20 "$MNT/file"
}

# move_and_cut(command of xfs_io...) - the file is synced, this is done during that, and then
# the power fails.  The disk stands still, and a fast commit first waits for the data of
# the other file.
move_and_cut() {
	local pid
	wbdisk_set test stall_ms "$STALL_MS"
	sync "$MNT/file" &
	pid=$!
	loop_until in_flight
	# It may wait for that commit.
	io "$@" &
	sleep 2
	wbdisk_set test stall_ms 0
	wait "$pid" || wrong "fsync fails"
	wait
	cut_power
	note "after the cut: $(stat -c "%s bytes, %b blocks of 512" "$MNT/file")"
	truncate -s 20 "$MNT/file"
}

# stand_still(file) - the disk does, and this small new file, synced, waits for it
stand_still() {
	wbdisk_set test stall_ms "$STALL_MS"
	xfs_io -f -c "pwrite 0 20" -c fsync "$MNT/$1" > /dev/null &
	loop_until in_flight
	sleep 1
}

# sync_beside() - sync the file until the disk goes on, then power fails
sync_beside() {
	local pid
	sync "$MNT/file" &
	pid=$!
	sleep 1
	wbdisk_set test stall_ms 0
	wait "$pid" || wrong "fsync fails"
	cut_power
	wait
	note "after the cut: $(od -An -tx1 -N 8 "$MNT/file")"
}

# as_written() - is the file on ext4 that of the reference?
as_written() {
	cmp "$REFERENCE/file" "$MNT/file" && return "$WRONG"
	note "$(stat -c %s "$MNT/file") bytes, first: $(od -An -tx1 -N 8 "$MNT/file")"
	return 1
}

# run_scenario(scenario, mount options) - two results
run_scenario() {
	local DIR MOUNT=$2 WRONG=0
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1
	# shellcheck disable=SC2086 # words
	ext4_new "$2" -m 0 ${EXT4_FORMAT[inline_data]/inline_data/inline_data${FEATURES[$1]-}}
	mount -t tmpfs none "$REFERENCE" || die "no tmpfs"
	for DIR in "$MNT" "$REFERENCE"; do
		"op_$1"
	done
	ext4_remount "$2" || die "cannot mount again"
	check "$1, $2: the file is what was written" as_written
	umount "$REFERENCE"
	umount_fs "$MNT"
	check "$1, $2: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# busy_commit() - a file that grew and one with more data are to be committed
#	The commit sends the data of the file that joined it last first, and a queue this
#	short lets no more of them go.
busy_commit() {
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1
	ext4_stale $DISK_MIB
	ext4_new nodelalloc -m 0 -O inline_data -I 256
	DIR=$MNT
	echo 0 > "/sys/block/$DISK_NAME/queue/wbt_lat_usec"
	echo 4 > "/sys/block/$DISK_NAME/queue/nr_requests"
	echo 64 > "/sys/block/$DISK_NAME/queue/max_sectors_kb"
	io "pwrite -S 0x11 0 20"
	touch "$MNT/empty"
	dd if=/dev/zero of="$MNT/read" bs=64k count=1 status=none
	sync -f "$MNT"
	echo 1 > /proc/sys/vm/drop_caches
	io "pwrite -S 0x22 20 8000"
	bulk 8m
	chmod 600 "$MNT/empty"
	wbdisk_set test stall_ms "$STALL_MS"
}

# begins(hex digits) - does the file begin with what was synced, or with these?
begins() {
	local bytes
	bytes=$(od -An -v -tx1 -N 20 "$MNT/file" | tr -d ' \n')
	[ "$bytes" = "$(printf '11%.0s' {1..20})" ] || [ "$bytes" = "$1" ]
}

# cut_after(what, process, what else the file may have, that in hex) - two results: the
#	power, when the process has synced
cut_after() {
	wbdisk_set test stall_ms 0
	wait "$2" || note "fsync fails"
	ext4_power_cut nodelalloc || die "cannot mount after the cut"
	wait
	note "after the cut: $(stat -c %s "$MNT/file") bytes, first: $(od -An -tx1 -N 8 "$MNT/file")"
	check "$1: no old data" eval "! grep -aq \$'\xaa' $MNT/file"
	check "$1: what was synced, or $3" begins "$4"
	umount_fs "$MNT"
	disk_teardown
}

# run_punched() - two results
run_punched() {
	local DIR pid
	busy_commit
	sync "$MNT/empty" &
	pid=$!
	loop_until in_flight
	sleep 1
	io "fpunch 0 8k" &
	sleep 1
	cut_after punched "$pid" zeros "$(printf '00%.0s' {1..20})"
}

# run_truncated() - two results
#	The commit waits for a write that reads what is around it, and truncate() for the
#	commit: it begins when that sends its data.
run_truncated() {
	local DIR pid
	busy_commit
	xfs_io -c "pwrite -S 0x44 100 100" "$MNT/read" > /dev/null &
	loop_until in_flight
	sync "$MNT/empty" &
	pid=$!
	sleep 1
	"$WB_DIR/fs_blocks" truncate "$MNT/file" 0 &
	sleep 1
	cut_after truncated "$pid" nothing ""
}

# run_nojournal(mount options) - one result
run_nojournal() {
	local DIR=$MNT
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1
	ext4_stale $DISK_MIB
	ext4_new "$1" -m 0 -O inline_data,^has_journal -I 256
	DIR=$MNT
	io "pwrite -S 0x11 0 20" fsync
	io "pwrite -S 0x22 20 8000"
	# Its inode is in the same block.
	xfs_io -f -c "pwrite -S 0x33 0 4k" -c fsync "$MNT/other" > /dev/null
	wbdisk_set test cut 1
	umount_fs "$MNT" 2> /dev/null
	wbdisk_set test power 0
	wbdisk_set test power 1
	loop_until [ -b "$DISK_DEV" ]
	e2fsck -fy "$DISK_DEV" > "$WB_OUT/fsck" 2>&1
	ext4_mount "$1" || die "cannot mount after the cut"
	note "after the cut: $(stat -c %s "$MNT/file") bytes, first: $(od -An -tx1 -N 8 "$MNT/file")"
	check "nojournal, $1: no old data" eval "! grep -aq \$'\xaa' $MNT/file"
	umount_fs "$MNT"
	disk_teardown
}

wb_begin
need_wbdisk
[ -x "$WB_DIR/fs_blocks" ] || skip_all "fs_blocks is not built"
# Nothing moves before it is asked to.
set_dirty writeback_centisecs 0
mkdir -p "$REFERENCE"
ktap_set_plan $((2 * ${#SCENARIOS[@]} * ${#MOUNTS[@]} + ${#NOLOCK[@]} + 2 * 2 + 1))
for scenario in "${SCENARIOS[@]}"; do
	for options in "${MOUNTS[@]}"; do
		run_scenario "$scenario" "$options"
	done
done
for options in "${NOLOCK[@]}"; do
	run_nojournal "$options"
done
run_punched
run_truncated
check_dmesg
ktap_finished
