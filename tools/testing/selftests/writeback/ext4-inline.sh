#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Small files that leave the inode (inline_data): the same operations on ext4 and on
# tmpfs must give the same file, also when the page cache and the journal are gone.
#
#	again	what fallocate moved to a block is overwritten
#	mapped	the same for a page that is written through mmap, then with write()
#	emptied	grows, is truncated to 0 before writeback, then fallocate
#	cut	grows, is truncated to what the inode could hold, then written to
#	append	the same, then continued
#	full	grows, and goes on when too few blocks are free for delayed allocation
#	lack	cannot grow: no block is free
#	power	synced, grows, its pages are sent to the disk, an empty file is synced,
#		the power is cut: what was synced must be there
#	path	grows with truncate(2), and nobody opened it since the mount

# shellcheck source=functions.sh
. "$(dirname "$0")/functions.sh"
# shellcheck source=lib-ext4.sh
. "$WB_DIR/lib-ext4.sh"

readonly DISK_MIB=64
# Less than ext4 wants to see free for delayed allocation: 4 batches of 32 per CPU.
readonly LEFT_BLOCKS=64
readonly REFERENCE=/mnt/reference
readonly SCENARIOS=(again mapped emptied cut append full lack power path)
readonly MOUNTS=("${EXT4_MOUNTS[@]}" data=journal)

opt_parse "ext4: files that leave the inode (inline_data)." "$@"

# io(command of xfs_io...) - on $DIR/file, in one process
function io() {
	local args=() command
	for command; do
		args+=(-c "$command")
	done
	xfs_io -f "${args[@]}" "$DIR/file" > "$WB_OUT/xfs_io" 2>&1 || note_file "$WB_OUT/xfs_io"
}

# Operations on $DIR/file, where "on_ext4" is for what must not change the file.

function on_ext4() {
	[ "$DIR" = "$REFERENCE" ] || "$@"
}

function op_again() {
	io "pwrite -S 0x11 0 20" fsync "falloc 0 64k" "pwrite -S 0x22 0 20" fsync
}

function op_mapped() {
	io "pwrite -S 0x11 0 20" "truncate 4096" "mmap 0 4096" "mwrite -S 0x22 0 4096" \
		"msync -s" munmap "pwrite -S 0x33 0 4096" fsync
}

function op_emptied() {
	io "pwrite -S 0x11 0 20" "pwrite -S 0x22 0 4096" "truncate 0" "falloc 0 64k" \
		"pwrite -S 0x33 0 4096" fsync
}

function op_cut() {
	io "pwrite -S 0x11 0 100" "pwrite -S 0x22 0 4096" "truncate 50" "pwrite -S 0x33 10 20" fsync
}

function op_append() {
	io "pwrite -S 0x11 0 100" "pwrite -S 0x22 0 4096" "truncate 50" "pwrite -S 0x33 50 8000" fsync
}

function op_full() {
	io "pwrite -S 0x11 0 20" "pwrite -S 0x22 0 4096"
	on_ext4 leave_blocks
	io "pwrite -S 0x33 8192 4096" fsync
}

function op_lack() {
	io "pwrite -S 0x11 0 20" fsync
	on_ext4 no_room
}

function op_path() {
	io "pwrite -S 0x11 0 20" fsync
	on_ext4 ext4_remount "$MOUNT"
	"$WB_DIR/fs_blocks" truncate "$DIR/file" 5000 || note "cannot truncate"
	io "pwrite -S 0x33 4096 100" fsync
}

function op_power() {
	io "pwrite -S 0x11 0 20" fsync
	on_ext4 grow_and_cut
}

# leave_blocks() - all but LEFT_BLOCKS of the free blocks are taken
function leave_blocks() {
	local free
	echo 0 > "/sys/fs/ext4/$DISK_NAME/reserved_clusters"
	free=$(stat -f -c %f "$MNT")
	ext4_falloc "$MNT/filler" 0 $(((free - LEFT_BLOCKS) * 4096)) || note "cannot take blocks"
}

# no_room() - a write beyond the inode fails, and leaves the file as it was
function no_room() {
	ext4_fill || note "cannot fill the disk"
	! xfs_io -c "pwrite -S 0x22 20 8000" "$MNT/file" > /dev/null 2>&1 || note "written without a free block"
	truncate -s 20 "$MNT/file"
}

# grow_and_cut() - power fails between the commit and the next one.  Behind the pages
# of another file, those of this one are still on their way when the commit begins.
function grow_and_cut() {
	echo 0 > "/sys/block/$DISK_NAME/queue/wbt_lat_usec"
	xfs_io -f -c "pwrite -b 1m 0 32m" "$MNT/bulk" > /dev/null
	io "pwrite -S 0x22 20 8000"
	xfs_io -c "sync_range -w 0 32m" "$MNT/bulk"
	xfs_io -c "sync_range -w 0 8020" "$MNT/file"
	xfs_io -f -c fsync "$MNT/empty"
	ext4_power_cut "$MOUNT"
	note "after the cut: $(stat -c %s "$MNT/file") bytes"
	truncate -s 20 "$MNT/file"
}

# as_written() - is the file on ext4 that of the reference?
function as_written() {
	cmp "$REFERENCE/file" "$MNT/file" && return
	note "$(stat -c %s "$MNT/file") bytes, first: $(od -An -tx1 -N 8 "$MNT/file")"
	return 1
}

# run_scenario(scenario, mount options) - two results
function run_scenario() {
	local DIR MOUNT=$2
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1
	# shellcheck disable=SC2086 # words
	ext4_new "$2" -m 0 ${EXT4_FORMAT[inline_data]}
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

wb_begin mke2fs e2fsck xfs_io cmp
need_wbdisk
[ -x "$WB_DIR/fs_blocks" ] || skip_all "fs_blocks is not built"
# Nothing moves before it is asked to.
set_dirty writeback_centisecs 0
mkdir -p "$REFERENCE"
ktap_set_plan $((2 * ${#SCENARIOS[@]} * ${#MOUNTS[@]} + 1))
for scenario in "${SCENARIOS[@]}"; do
	for options in "${MOUNTS[@]}"; do
		run_scenario "$scenario" "$options"
	done
done
check_dmesg
ktap_finished
