#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What fsync() acknowledged on ext4 with fast_commit is there after a power cut.  The
# disk's cache is volatile: what was not flushed is gone.
#	frozen	a file is written and synced after the file system was frozen, which empties
#		the journal
#	many	one of many new files is synced, which takes several blocks of the journal
#	moved	a file is defragmented, then overwritten and synced
#	meanwhile	a file grows and another is renamed while a full commit, for what fast
#		commits cannot log, waits for data; they are synced after that
#	linked	a file gets a second name, for which a fast commit waits, and is synced while
#		that is under way
#	zeroed	a small preallocated extent is zeroed as its first block is written and
#		synced; another of its blocks is written and synced after that

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"

readonly DISK_MIB=128 STALL_MS=9000
readonly FILES=48		# several inodes and names to a block of the journal
readonly EXTENTS=16		# more than an inode has room for

about title "what is there of files that were synced on ext4 with fast_commit, after a power cut"
about replays "none: fails on the stock kernel"
about wall 20
about programs e2fsck e4defrag mke2fs xfs_io
about series
case_parse "$@"

# fresh(options, [options of mke2fs...]) - new file system, whose journal has had a full commit
fresh() {
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1
	ext4_new "$1" -m 0 -O fast_commit "${@:2}"
	mkdir "$MNT/dir"
	: > "$MNT/other"
	sync -f "$MNT"
	began
}

# commits([numblks]) - how many fast commits there were, or of how many blocks
commits() {
	awk -v what="${1:-commits}" '$2 == what { print $1 }' "/proc/fs/ext4/$DISK_NAME/fc_info"
}

# began() - remember how many there were
began() {
	COMMITS=$(commits) BLOCKS=$(commits numblks)
	[ -n "$COMMITS" ] || die "no fast commits"
}

# committed([blocks]) - or the end of the case: was there one, of so many blocks or more?
committed() {
	[ "$(commits)" -gt "$COMMITS" ] || die "no fast commit"
	[ $(($(commits numblks) - BLOCKS)) -ge "${1:-1}" ] || die "less than $1 blocks"
}

# stand_still() - the disk does; go_on() - or the end of the case: it still did
stand_still() {
	wbdisk_set test stall_ms "$STALL_MS"
}

go_on() {
	[ "$(cat "$WBDISK_CONFIGFS/test/stall_ms")" -gt 0 ] || die "the disk went on"
	wbdisk_set test stall_ms 0
}

# has(file, character, block, [blocks]) - do these blocks consist of that?
has() {
	[ "$(dd if="$1" bs=4k skip="$3" count="${4:-1}" status=none | tr -cd "$2" | wc -c)" -eq \
		$((${4:-1} * 4096)) ]
}

# end(what, options, command...) - two results: the power is cut, the command is true
end() {
	ext4_power_cut "$2" || die "cannot mount after the cut"
	check "$1, $2: what was synced is there" "${@:3}"
	umount_fs "$MNT"
	check "$1, $2: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

run_frozen() {
	fresh "$1"
	xfs_io -x -c freeze -c thaw "$MNT" || die "cannot freeze"
	ext4_io "$MNT/file" "pwrite -S 0x62 0 4k" fsync
	end frozen "$1" has "$MNT/file" b 0
}

run_many() {
	local n
	fresh "$1"
	for ((n = 0; n < FILES; n++)); do
		ext4_io "$MNT/dir/file-$n" "pwrite -S 0x62 0 4k"
	done
	sync "$MNT/dir/file-0"
	committed 2
	end many "$1" has "$MNT/dir/file-0" b 0
}

run_moved() {
	local n commands=() file
	fresh "$1"
	file=$MNT/file
	# Blocks from the end to the start, between those of another file
	for ((n = EXTENTS - 1; n >= 0; n--)); do
		ext4_io "$file" "pwrite -S 0x61 $((4 * n))k 4k" fsync
		ext4_io "$MNT/other" "pwrite -S 0x61 $((4 * n))k 4k" fsync
	done
	sync -f "$MNT"
	e4defrag "$file" > "$WB_OUT/defrag" 2>&1
	grep -q "Success:.*1/1" "$WB_OUT/defrag" || { note_file "$WB_OUT/defrag"; die "no defragmentation"; }
	for ((n = 0; n < EXTENTS; n++)); do
		commands+=("pwrite -S 0x62 $((4 * n))k 4k")
	done
	ext4_io "$file" "${commands[@]}" fsync
	end moved "$1" has "$file" b 0 $EXTENTS
}

# grown_and_renamed(directory)
grown_and_renamed() {
	note "$1: $(stat -c %s "$1/file") bytes, $(echo "$1"/*)"
	has "$1/file" b 1 && [ -e "$1/new" ] && ! [ -e "$1/old" ]
}

run_meanwhile() {
	local dir
	fresh "$1,commit=1"
	ext4_io "$MNT/large" "pwrite -S 0x61 0 64k"
	# What is changed meanwhile needs no block of metadata that the commit waits to write.
	mkdir "$MNT/dir/"{0..31}
	dir=$MNT/dir/31
	ext4_io "$dir/file" "falloc -k 0 64k" "pwrite -S 0x61 0 4k"
	: > "$dir/old"
	sync -f "$MNT"
	ext4_io "$MNT/large" "fcollapse 0 4k" "pwrite -S 0x61 64k 64k"
	stand_still
	loop_until in_flight || die "no commit"
	ext4_io "$dir/file" "pwrite -S 0x62 4k 4k"
	mv "$dir/old" "$dir/new"
	go_on
	began
	sync "$dir/file" "$dir/new"
	committed
	end meanwhile "$1" grown_and_renamed "$dir"
}

# reading() - is a read on its way to the disk?
reading() {
	[ "$(awk '{ print $1 }' "/sys/block/$DISK_NAME/inflight")" -gt 0 ]
}

run_linked() {
	local n name pids=()
	fresh "$1"
	: > "$MNT/file"
	# Names of this length fill a block of the directory; the next needs another one.
	for ((n = 0; n < 15; n++)); do
		printf -v name %0250d "$n"
		: > "$MNT/dir/$name"
	done
	printf -v name %0250d "$n"
	ext4_remount "$1" || die "cannot mount again"
	ls "$MNT/dir" > /dev/null
	chmod 644 "$MNT/other" "$MNT/file"
	sync -f "$MNT"
	chmod 600 "$MNT/other"
	began
	# Has to read which blocks are free, with a handle open.
	stand_still
	{ ln "$MNT/file" "$MNT/dir/$name" && sync "$MNT/file"; } &
	pids+=("$!")
	loop_until reading || die "it need not read"
	sync "$MNT/other" &
	pids+=("$!")
	sleep 1
	go_on
	wait "${pids[@]}" || die "fsync fails"
	committed
	ext4_power_cut "$1" || die "cannot mount after the cut"
	check "linked, $1: what was synced is there" [ -e "$MNT/dir/$name" ]
	umount_fs "$MNT"
	# Replay does not count the blocks of a directory that grows, stock as patched.
	e2fsck -fp "$DISK_DEV" > "$WB_OUT/fsck" 2>&1
	check "linked, $1: e2fsck finds nothing that it cannot correct" [ $? -le 1 ]
	disk_teardown
}

run_zeroed() {
	local file
	fresh "$1"
	file=$MNT/file
	ext4_io "$file" "falloc 0 32k"
	sync -f "$MNT"
	ext4_io "$file" "pwrite -S 0x61 0 4k" fsync
	ext4_io "$file" "pwrite -S 0x62 16k 4k" fsync
	committed
	end zeroed "$1" has "$file" b 4
}

wb_begin
need_wbdisk
ktap_set_plan $((2 * 7 + 1))
run_frozen delalloc
run_many delalloc
run_moved nodelalloc
run_meanwhile nodelalloc
run_linked delalloc
run_zeroed nodelalloc
run_zeroed delalloc,dioread_lock
check_dmesg
ktap_finished
