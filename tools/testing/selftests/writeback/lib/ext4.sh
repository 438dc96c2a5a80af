#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# ext4 on a modelled disk, for the cases ext4-*.sh.  Sourced after functions.sh.

# The ways to write that the cases compare.
# shellcheck disable=SC2034 # for the cases
readonly EXT4_MOUNTS=(delalloc nodelalloc "nodelalloc,dioread_nolock")

# Formats, as options of mke2fs.  fast_commit and inline_data are experimental
# features that mke2fs only warns about.
# shellcheck disable=SC2034 # for the cases
declare -Ar EXT4_FORMAT=(
	[plain]="" [1k]="-b 1024" [quota]="-O quota" [bigalloc]="-O bigalloc -C 16384"
	[inline_data]="-O inline_data -I 256" [fast_commit]="-O fast_commit"
	[nojournal]="-O ^has_journal" [encrypt]="-O encrypt" [no_extents]="-O ^extent,^64bit"
)

# ext4_stale(mib) - fill the disk with 0xAA, the old data that nobody may see
ext4_stale() {
	tr '\0' '\252' < /dev/zero |
		dd of="$DISK_DEV" bs=1M count="$1" iflag=fullblock oflag=direct status=none
}

# ext4_format([options of mke2fs...]) - keeps what is in the data blocks; blocks of
# 4 KiB, which mke2fs would not take for a small disk, unless the options say else; as
# large as EXT4_SIZE says if that is set
ext4_format() {
	mke2fs -q -F -t ext4 -U "$FS_UUID" -b 4096 \
		-E "nodiscard,hash_seed=$HASH_SEED,lazy_itable_init=0,lazy_journal_init=0" \
		"$@" "$DISK_DEV" ${EXT4_SIZE:+"$EXT4_SIZE"}
}

# ext4_new(mount options, [options of mke2fs...]) - a new file system, mounted, or
# the end of the case
ext4_new() {
	local options=$1
	shift
	ext4_format "$@" || die "no file system"
	ext4_mount "$options" || die "cannot mount with $options"
}

# ext4_mount(options)
ext4_mount() {
	mount_fs ext4 "$DISK_DEV" "$MNT" "$1"
}

# ext4_remount(options) - unmount, forget the page cache, mount again
ext4_remount() {
	umount_fs "$MNT" && ext4_mount "$1"
}

# ext4_power_cut(options) - power off and on, mount; 1 if that fails
#	A case with an axis "replay" of kernel and e2fsck has the journal replayed by that.
ext4_power_cut() {
	wbdisk_set test cut 1
	# Who still syncs a file keeps it busy until that has failed.
	loop_until umount_fs "$MNT" 2> /dev/null
	wbdisk_set test power 0
	wbdisk_set test power 1
	loop_until [ -b "$DISK_DEV" ]
	if [ "${OPT[replay]:-kernel}" = e2fsck ]; then
		# As at boot
		e2fsck -p "$DISK_DEV" > "$WB_OUT/replay" 2>&1 ||
			[ $? -eq 1 ] || note_file "$WB_OUT/replay"
	fi
	ext4_mount "$1"
}

# ext4_commit() - of the journal, and of no data but what that needs
ext4_commit() {
	dd if=/dev/zero of="$MNT/other" bs=4K count=1 conv=fsync status=none || die "cannot write to $MNT"
}

# ext4_io(file, command of xfs_io...) - no fsync unless that is one of the commands
ext4_io() {
	local args=() command
	for command in "${@:2}"; do
		args+=(-c "$command")
	done
	xfs_io -f "${args[@]}" "$1" > "$WB_OUT/xfs_io" 2>&1 && return
	note_file "$WB_OUT/xfs_io"
	die "cannot write $1"
}

# ext4_front() - how many sectors the file system's fronts take, up to the end of the first
# group's table of inodes: no data is there
ext4_front() {
	dumpe2fs "$DISK_DEV" 2> /dev/null |
		awk '/Inode table at/ { sub(/.*-/, "", $4); print ($4 + 1) * 8; exit }'
}

# ext4_attr(name) - value of an attribute of the mounted file system, 0 if the
# kernel does not have it
ext4_attr() {
	cat "/sys/fs/ext4/$DISK_NAME/$1" 2> /dev/null || echo 0
}

# ext4_need(attribute, reason) - skip the case if this kernel's ext4 does not have it
ext4_need() {
	disk_raw fifo capacity_mib=64
	ext4_new nodelalloc
	[ -e "/sys/fs/ext4/$DISK_NAME/$1" ] || skip_all "$2"
	disk_teardown
}

# ext4_of_series() - does this ext4 heed dioread_nolock with nodelalloc? Else it is in
# force by default then, for nothing
ext4_of_series() {
	local heeds=0
	disk_raw fifo capacity_mib=64
	ext4_new nodelalloc
	grep -qx nodioread_nolock "/proc/fs/ext4/$DISK_NAME/options" || heeds=1
	umount_fs "$MNT"
	disk_teardown
	return $heeds
}

# ext4_need_dioread_nolock() - skip the case if this kernel's ext4 ignores that with nodelalloc
ext4_need_dioread_nolock() {
	ext4_of_series || skip_all "this kernel's ext4 ignores dioread_nolock with nodelalloc"
}

# ext4_ends_delalloc() - does a remount end delayed allocation? Newer kernels refuse that
ext4_ends_delalloc() {
	local refused=0
	disk_raw fifo capacity_mib=64
	ext4_new delalloc
	mount -o remount,nodelalloc "$MNT" 2> /dev/null || refused=1
	umount_fs "$MNT"
	disk_teardown
	return $refused
}

# ext4_end() - unmount, and the end of the case if e2fsck finds anything
ext4_end() {
	umount_fs "$MNT"
	fsck_clean ext4 "$DISK_DEV" || die "e2fsck"
	disk_teardown
}

# ext4_falloc(file, offset, length) - allocate unwritten blocks, leave i_size alone
#	fallocate(1) would fsync the file.
ext4_falloc() {
	[ -z "$(xfs_io -f -c "falloc -k $2 $3" "$1" 2>&1)" ]
}

# ext4_fill() - no free block is left: neither for files nor in reserve
ext4_fill() {
	local size n=0
	echo 0 > "/sys/fs/ext4/$DISK_NAME/reserved_clusters" || return
	for size in 64m 8m 1m 64k 4k 1k; do
		while ext4_falloc "$MNT/fill$n" 0 "$size"; do
			n=$((n + 1))
		done
		rm -f "$MNT/fill$n"
	done
	[ "$(stat -f -c %f "$MNT")" -eq 0 ] && return
	note "$(stat -f -c %f "$MNT") blocks are still free"
	return 1
}

# ext4_word(file, key) - the number behind a key of fs_blocks
ext4_word() {
	awk -v key="$2" '$1 == key { print $2 }' "$1"
}

# in_flight([n]) - is a write on its way to the disk, or that many?
in_flight() {
	[ "$(awk '{ print $9 }' "/sys/block/$DISK_NAME/stat")" -ge "${1:-1}" ]
}
