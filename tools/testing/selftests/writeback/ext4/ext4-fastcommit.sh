#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What fsync() acknowledged on ext4 with fast_commit is there after a power cut, and it
# ends.  The disk's cache is volatile: what was not flushed is gone.
#	frozen	a file is written and synced after the file system was frozen, which empties
#		the journal
#	many	one of many new files is synced, which takes several blocks of the journal
#	moved	a file is defragmented, then overwritten and synced
#	meanwhile	a file grows and another is renamed while a full commit, for what fast
#		commits cannot log, waits for data; they are synced after that
#	linked	a file gets a second name, for which a fast commit waits, and is synced while
#		that is under way
#	named	a file gets a second name while a fast commit waits for its data
#	appended	it gets more blocks instead, on a disk full of old data
#	truncated	truncate() waits for data that are on their way, in the middle, while another
#		file is synced
#	evicted	a file in a new directory is synced after the directory was evicted from memory
#	shifted	a range is taken out of, or put into, a file of so many extents that it takes
#		several transactions; the file is synced in the last one
#	aborted	the file system is shut down meanwhile
#	zeroed	a small preallocated extent is zeroed as its first block is written and
#		synced; another of its blocks is written and synced after that
#	emptied	EXT4_IOC_CHECKPOINT empties the journal while a fast commit waits for data, or
#		while both wait for a handle, to which they came in either order

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"

readonly DISK_MIB=128 STALL_MS=9000
readonly WAIT_S=20		# both were to end at once; less than a hung task takes to be one
readonly FILES=48		# several inodes and names to a block of the journal
readonly SHIFT_JOURNAL_MIB=1 SHIFT_EXTENTS=32768	# takes more blocks than a transaction may have
readonly EXTENTS=16		# more than an inode has room for

about title "what is there of files that were synced on ext4 with fast_commit, after a power cut"
about replays "none: fails on the stock kernel"
about wall 40
about programs awk e2fsck e4defrag mke2fs xfs_io
about series
case_parse "$@"

# fresh(options, [options of mke2fs...]) - new file system, whose journal has had a full commit;
# $STALE: on a disk full of old data
fresh() {
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1
	[ -z "${STALE:-}" ] || ext4_stale $DISK_MIB
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
	COMMITS=$(commits) INELIGIBLE=$(commits ineligible) BLOCKS=$(commits numblks)
	[ -n "$COMMITS" ] || die "no fast commits"
}

# committed([blocks]) - or the end of the case: was there one, of so many blocks or more?
committed() {
	[ "$(commits)" -gt "$COMMITS" ] || die "no fast commit"
	[ $(($(commits numblks) - BLOCKS)) -ge "${1:-1}" ] || die "less than $1 blocks"
}

# tried() - or the end of the case: was one begun, even if the file system was ineligible?
tried() {
	[ $(($(commits) + $(commits ineligible))) -gt $((COMMITS + INELIGIBLE)) ] || die "no fast commit was tried"
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

# link_waits(options, command...) - in a new file system, in the background, file gets a second
# name, $NAME, which waits with a handle open until go_on(); the command is next
link_waits() {
	local n
	fresh "$1"
	: > "$MNT/file"
	# Names of this length fill a block of the directory; the next needs another one.
	for ((n = 0; n < 16; n++)); do
		printf -v NAME %s/%0250d "$MNT/dir" "$n"
		[ "$n" -eq 15 ] || : > "$NAME"
	done
	ext4_remount "$1" || die "cannot mount again"
	ls "$MNT/dir" > /dev/null
	chmod 644 "$MNT/other" "$MNT/file"
	sync -f "$MNT"
	chmod 600 "$MNT/other"
	began
	# Has to read which blocks are free.
	stand_still
	{ ln "$MNT/file" "$NAME" && "${@:2}"; } &
	PIDS=("$!")
	loop_until reading || die "it need not read"
}

# then_run(command...) - in the background; it has a second to get to where it waits
then_run() {
	"$@" &
	PIDS+=("$!")
	sleep 1
}

# all_succeed() - do all that run in the background?
all_succeed() {
	local pid failed=0
	for pid in "${PIDS[@]}"; do
		wait "$pid" || failed=1
	done
	return $failed
}

run_linked() {
	link_waits "$1" sync "$MNT/file"
	then_run sync "$MNT/other"
	go_on
	all_succeed || die "fsync fails"
	committed
	ext4_power_cut "$1" || die "cannot mount after the cut"
	check "linked, $1: what was synced is there" [ -e "$NAME" ]
	umount_fs "$MNT"
	# Replay does not count the blocks of a directory that grows, stock as patched.
	e2fsck -fp "$DISK_DEV" > "$WB_OUT/fsck" 2>&1
	check "linked, $1: e2fsck finds nothing that it cannot correct" [ $? -le 1 ]
	disk_teardown
}

# data_waits(options) - a fast commit waits for the data of file, which is in its queue, until go_on()
data_waits() {
	fresh "$1,commit=60"
	: > "$MNT/file"
	sync -f "$MNT"
	began
	ext4_io "$MNT/file" "pwrite -S 0x61 0 64k"
	chmod 600 "$MNT/other"
	stand_still
	sync "$MNT/other" &
	PIDS=("$!")
	loop_until in_flight || die "it need not wait"
}

# while_data_wait(options, command...) - $MEANWHILE: it was done before the fast commit had the
# data, and is in it, not in the next, as where updates are locked for so long
while_data_wait() {
	data_waits "$1"
	then_run "${@:2}"
	MEANWHILE=1
	! kill -0 "$!" 2> /dev/null || MEANWHILE=0
	go_on
	all_succeed || die "fsync or '${*:2}' fails"
	committed
	note "done meanwhile: $MEANWHILE"
}

# has_both_names()
has_both_names() {
	has "$MNT/file" a 0 16 && { [ $MEANWHILE -eq 0 ] || [ "$MNT/file" -ef "$MNT/dir/file" ]; }
}

run_named() {
	while_data_wait "$1" ln "$MNT/file" "$MNT/dir/file"
	end named "$1" has_both_names
}

# has_all(file)
has_all() {
	local blocks=$((16 + 16 * MEANWHILE))
	note "$(stat -c %s "$1") bytes"
	[ "$(stat -c %s "$1")" -eq $((blocks * 4096)) ] && has "$1" a 0 $blocks
}

run_appended() {
	STALE=1 while_data_wait "$1" ext4_io "$MNT/file" "pwrite -S 0x61 64k 64k"
	end appended "$1" has_all "$MNT/file"
}

run_truncated() {
	fresh "$1,commit=60"
	ext4_io "$MNT/file" "pwrite -S 0x61 0 64k"
	sync -f "$MNT"
	began
	chmod 600 "$MNT/other"
	stand_still
	ext4_io "$MNT/file" "pwrite -S 0x62 0 64k" "sync_range -w 0 64k"
	loop_until in_flight || die "nothing is on its way"
	PIDS=()
	then_run truncate -s 0 "$MNT/file"
	[ "$(stat -c %s "$MNT/file")" -eq 0 ] || die "it has not begun"
	kill -0 "${PIDS[@]}" || die "it has ended"
	then_run sync "$MNT/other"
	go_on
	all_succeed || die "fsync or truncate() fails"
	tried
	end truncated "$1" [ ! -s "$MNT/file" ]
}

run_evicted() {
	fresh "$1,commit=300"
	mkdir "$MNT/new"
	# It counts as dirty until writeback has looked at it.
	sleep 45
	echo 2 > /proc/sys/vm/drop_caches
	ext4_io "$MNT/new/file" "pwrite -S 0x62 0 4k" fsync
	end evicted "$1" has "$MNT/new/file" b 0
}

# has_content(file) - that of $WB_OUT/content?
has_content() {
	cmp "$1" "$WB_OUT/content" > "$WB_OUT/cmp" 2>&1 && return
	note_file "$WB_OUT/cmp"
	return 1
}

# transactions() - how many were committed
transactions() {
	awk '$2 == "transactions" { print $1 }' "/proc/fs/jbd2/$DISK_NAME-8/info"
}

# many_extents(options) - file is one of SHIFT_EXTENTS blocks with holes between them
many_extents() {
	fresh "$1" -b 1024 -J size=$SHIFT_JOURNAL_MIB
	awk -v n=$SHIFT_EXTENTS 'BEGIN { while (n--) printf("%01023d\n%1024s", n, "") }' | tr ' ' '\0' |
		dd of="$MNT/file" bs=1k iflag=fullblock conv=sparse status=none || die "no file"
	sync -f "$MNT"
	# jbd2 counts a transaction after it has woken us.
	sleep 1
	TRANSACTIONS=$(transactions)
}

# run_shifted(options, command of xfs_io)
run_shifted() {
	local file=$MNT/file
	many_extents "$1,commit=60"
	ext4_io "$file" "$2 2k 2k"
	# All but the last are committed on their own.
	sleep 2
	[ "$(transactions)" -gt "$TRANSACTIONS" ] || die "it took one transaction"
	ext4_io "$file" "pwrite -S 0x62 0 1k"
	cp "$file" "$WB_OUT/content"
	sync "$file"
	end "shifted, $2" "$1" has_content "$file"
}

run_aborted() {
	many_extents "$1"
	stand_still
	{ ! xfs_io -c "fcollapse 2k 2k" "$MNT/file" > "$WB_OUT/xfs_io" 2>&1; } &
	PIDS=("$!")
	loop_until in_flight || die "it took one transaction"
	# Aborts the journal, and waits to write that to it.
	then_run xfs_io -x -c shutdown "$MNT"
	go_on
	check "aborted, $1: collapsing a range fails" all_succeed
	note_file "$WB_OUT/xfs_io"
	umount_fs "$MNT"
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

# ended(title) - one result: does all that runs in the background end, and succeed? Or the end of the case
ended() {
	go_on
	if ! tasks_end $WAIT_S "${PIDS[@]}"; then
		ktap_test_fail "$1"
		die "they wait for each other"
	fi
	tried
	check "$1" all_succeed
	umount_fs "$MNT"
	disk_teardown
}

# run_emptied(options, first, second) - of sync and ext4_checkpoint
run_emptied() {
	link_waits "$1" true
	then_run "$2" "$MNT/other"
	then_run "$3" "$MNT/other"
	ended "emptied, $1: ${2##*/}, then ${3##*/}: both end"
}

run_emptied_data() {
	data_waits "$1"
	then_run "$WB_DIR/ext4_checkpoint" "$MNT/other"
	ended "emptied, $1: while a fast commit waits for data: both end"
}

wb_begin
need_wbdisk
ktap_set_plan $((2 * 13 + 5))
run_frozen delalloc
run_many delalloc
run_moved nodelalloc
run_meanwhile nodelalloc
run_linked delalloc
run_named nodelalloc
run_appended nodelalloc
run_truncated delalloc
run_evicted delalloc
run_shifted delalloc fcollapse
run_shifted delalloc finsert
run_aborted delalloc
run_zeroed nodelalloc
run_zeroed delalloc,dioread_lock
# The last: where it fails, nothing can be unmounted.
run_emptied_data nodelalloc
run_emptied delalloc sync "$WB_DIR/ext4_checkpoint"
run_emptied delalloc "$WB_DIR/ext4_checkpoint" sync
check_dmesg
ktap_finished
