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
#	allocated	a file gets blocks, for which a fast commit waits, and is synced while that
#		is under way
#	skipped	a file is overwritten and synced while a fast commit sends its last block
#	linked	a file gets a second name, for which its directory grows, and is synced
#	replaced	a file is synced, and a full commit follows
#	named	a file gets a second name while a fast commit waits for its data
#	appended	it gets more blocks instead, on a disk full of old data
#	truncated	truncate() waits for data that are on their way, in the middle, while another
#		file is synced; or it goes on, a block is written and synced after that, or two files
#		are truncated
#	nameless	another file is synced while one is open that has no name any more, or never had,
#		or that itself is
#	tmpfile	a file without a name gets one, and is synced
#	reused	a file that was open without a name is closed, a new one gets its inode number
#	directory	a file in a new directory is synced, another where one was removed, or a new
#		one in a directory whose mode was changed
#	appenders	two tasks write more and more with O_DIRECT and sync it: still with fast
#		commits
#	appending	another file is synced while one is appended to with O_DIRECT, on a disk
#		full of old data
#	dsync	a block that a file just got is written with O_DIRECT and O_DSYNC, in a
#		transaction that has to be committed in full, or not
#	quota	files of new users, and of one, are synced
#	indirect	a file without extents is synced
#	migrated	a file is changed to extents, and synced
#	large inodes	an inode is as large as a block
#	attribute	a new file has the inode number of one that had an attribute
#	attributes	a file with a block of attributes is written and synced
#	bigalloc	a file is written, and holes are punched in clusters
#	preallocated	blocks behind the end are given back, which another file gets
#	resized	a full file system grows; a file is synced as soon as it gets blocks
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
readonly APPENDED=60		# blocks; where each commit is a full one, none of them is fast
readonly SMALL=40000		# blocks of 1 KiB, of a disk of 128 MiB
readonly EXTENTS=16		# more than an inode has room for

about title "what is there of files that were synced on ext4 with fast_commit, after a power cut"
about replays "none: fails on the stock kernel"
about wall 40
about programs awk chattr e2fsck e4defrag getfattr mke2fs resize2fs setfattr tune2fs xfs_io
about kernel QUOTA QFMT_V2
about series
axis replay kernel 'kernel|e2fsck' "who replays the journal after the cut"
case_parse "$@"

# fresh(options, [options of mke2fs...]) - new file system, whose journal has had a full commit;
# $STALE: on a disk full of old data
fresh() {
	fresh_any "$@"
	began
}

# fresh_any(options, [options of mke2fs...]) - the same, which need not have fast commits
fresh_any() {
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1
	[ -z "${STALE:-}" ] || ext4_stale $DISK_MIB
	ext4_new "$1" -m 0 -O fast_commit "${@:2}"
	mkdir "$MNT/dir"
	: > "$MNT/other"
	sync -f "$MNT"
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
	local there=0
	if ext4_power_cut "$2"; then
		"${@:3}" && there=1
		umount_fs "$MNT"
	else
		note "cannot mount after the cut"
	fi
	check "$1, $2: what was synced is there" [ $there -eq 1 ]
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

# alloc_waits(options, command...) - in a new file system, in the background, file gets 64 KiB,
# for which it waits with a handle open until go_on(); the command is next
alloc_waits() {
	fresh "$1"
	: > "$MNT/file"
	ext4_remount "$1" || die "cannot mount again"
	chmod 644 "$MNT/other" "$MNT/file"
	sync -f "$MNT"
	chmod 600 "$MNT/other"
	began
	# Has to read which blocks are free.
	stand_still
	{ xfs_io -c "falloc 0 64k" "$MNT/file" > "$WB_OUT/falloc" 2>&1 && "${@:2}"; } &
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

run_allocated() {
	alloc_waits "$1" sync "$MNT/file"
	then_run sync "$MNT/other"
	go_on
	all_succeed || die "fsync fails"
	committed
	end allocated "$1" eval "[ \$(stat -c %s $MNT/file) -eq 65536 ]"
}

# run_skipped() - the inode's fields were changed before, but its data are not in that fast
# commit's flush
run_skipped() {
	fresh "$1,commit=300"
	ext4_io "$MNT/file" "pwrite -S 0x61 0 64k" fsync
	sync -f "$MNT"
	began
	chmod 600 "$MNT/file" "$MNT/other"
	# After this one, and with lazytime, the next overwrite needs no handle.
	xfs_io -d -c "pwrite -q -S 0x61 0 4k" "$MNT/file"
	stand_still
	sync "$MNT/other" &
	PIDS=("$!")
	loop_until in_flight || die "no fast commit"
	then_run xfs_io -d -c "pwrite -q -S 0x62 0 4k" -c fsync "$MNT/file"
	go_on
	all_succeed || die "fsync fails"
	committed
	end skipped "$1" has "$MNT/file" b 0
}

run_linked() {
	local n name
	fresh "$1"
	ext4_io "$MNT/file" "pwrite -S 0x62 0 4k"
	# Names of this length fill a block of the directory; the next needs another one.
	for ((n = 0; n < 16; n++)); do
		printf -v name %s/%0250d "$MNT/dir" "$n"
		[ "$n" -eq 15 ] || : > "$name"
	done
	sync -f "$MNT"
	began
	ln "$MNT/file" "$name"
	sync "$MNT/file"
	tried
	end linked "$1" has "$name" b 0
}

run_replaced() {
	fresh "$1"
	ext4_io "$MNT/file" "pwrite -S 0x62 0 4k" fsync
	committed
	sync -f "$MNT"
	end replaced "$1" has "$MNT/file" b 0
}

run_large_inodes() {
	fresh "$1" -b 1024 -I 1024
	ext4_io "$MNT/file" "pwrite -S 0x62 0 4k" fsync
	check "large inodes, $1: there is a fast commit" [ "$(commits)" -gt "$COMMITS" ]
	end "large inodes" "$1" has "$MNT/file" b 0 1
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

# truncating(options, file...) - each waits in the middle of truncate() for its data, of which
# there are 256 KiB, until go_on(), while another file is synced
truncating() {
	local file files=("${@:2}") args=()
	# With orphan_file there is no list that could end too early.
	[ "${#files[@]}" -eq 1 ] || args=(-O ^orphan_file)
	fresh "$1,commit=60" "${args[@]}"
	for file in "${files[@]}"; do
		ext4_io "$file" "pwrite -S 0x61 0 256k"
	done
	sync -f "$MNT"
	began
	chmod 600 "$MNT/other"
	stand_still
	for file in "${files[@]}"; do
		ext4_io "$file" "pwrite -S 0x62 0 64k" "sync_range -w 0 64k"
	done
	loop_until in_flight || die "nothing is on its way"
	PIDS=()
	for file in "${files[@]}"; do
		then_run truncate -s 0 "$file"
		[ "$(stat -c %s "$file")" -eq 0 ] || die "it has not begun"
	done
	kill -0 "${PIDS[@]}" || die "it has ended"
	then_run sync "$MNT/other"
	go_on
	all_succeed || die "fsync or truncate() fails"
	tried
	began
}

run_truncated() {
	truncating "$1" "$MNT/file"
	end truncated "$1" [ ! -s "$MNT/file" ]
}

# has_hole(file, [block]) - is there only this block of 'b', the 61st, and zeros before it?
has_hole() {
	local block=${2:-60}
	[ "$(tr -d '\0' < "$1" | wc -c)" -eq 4096 ] && has "$1" b "$block"
}

run_truncated_written() {
	truncating "$1" "$MNT/file"
	ext4_io "$MNT/file" "pwrite -S 0x62 240k 4k" fsync
	tried
	end "truncated, then written" "$1" has_hole "$MNT/file"
}

# empty(file...)
empty() {
	[ "$(cat "$@" | wc -c)" -eq 0 ]
}

run_truncated_two() {
	truncating "$1" "$MNT/file" "$MNT/dir/file"
	chmod 644 "$MNT/other"
	sync "$MNT/other"
	tried
	end "truncated, two" "$1" empty "$MNT/file" "$MNT/dir/file"
}

# nameless(file) - it is file descriptor 3, and has no name
nameless() {
	exec 3<> "$1" || die "cannot open $1"
	rm "$1"
}

# end_nameless(what, options) - two results: the power is cut, with it open
end_nameless() {
	tried
	wbdisk_set test cut 1
	exec 3>&-
	end "nameless, $1" "$2" [ "$(stat -c %a "$MNT/other")" -eq 600 ]
}

run_nameless() {
	fresh "$1"
	ext4_io "$MNT/file" "pwrite -S 0x61 0 64k"
	sync -f "$MNT"
	began
	nameless "$MNT/file"
	chmod 600 "$MNT/other"
	sync "$MNT/other"
	end_nameless "of an earlier transaction" "$1"

	fresh "$1"
	ext4_io "$MNT/file" "pwrite -S 0x61 0 64k"
	nameless "$MNT/file"
	chmod 600 "$MNT/other"
	sync "$MNT/other"
	end_nameless "of the same" "$1"

	fresh "$1"
	chmod 600 "$MNT/other"
	xfs_io -T -c "pwrite -S 0x61 0 64k" -c fsync "$MNT" > "$WB_OUT/xfs_io" 2>&1 || die "no O_TMPFILE"
	end_nameless "synced" "$1"
}

# run_tmpfile(options, [command of xfs_io between...])
run_tmpfile() {
	local args=() command
	fresh "$1"
	for command in "pwrite -S 0x62 0 64k" "${@:2}" "flink $MNT/file" fsync; do
		args+=(-c "$command")
	done
	xfs_io -T "${args[@]}" "$MNT" > "$WB_OUT/xfs_io" 2>&1 || die "no O_TMPFILE"
	# One that was to be synced without a name makes it a full commit.
	if [ $# -eq 1 ]; then committed; else tried; fi
	end "tmpfile${2:+, $2 before}" "$1" has "$MNT/file" b 0 16
}

run_reused() {
	local inode
	fresh "$1" -O ^orphan_file
	# Two, the newest first in the list
	ext4_io "$MNT/dir/file" "pwrite -S 0x61 0 64k"
	ext4_io "$MNT/file" "pwrite -S 0x61 0 64k"
	inode=$(stat -c %i "$MNT/file")
	exec 4<> "$MNT/dir/file"
	rm "$MNT/dir/file"
	nameless "$MNT/file"
	sync -f "$MNT"
	began
	exec 3>&-
	ext4_io "$MNT/file" "pwrite -S 0x62 60k 4k" fsync
	[ "$(stat -c %i "$MNT/file")" -eq "$inode" ] || die "it has another inode number"
	tried
	wbdisk_set test cut 1
	exec 4>&-
	end reused "$1" has_hole "$MNT/file" 15
}

run_directory() {
	fresh "$1"
	mkdir "$MNT/new" "$MNT/new/dir"
	ext4_io "$MNT/new/dir/file" "pwrite -S 0x62 0 4k" fsync
	tried
	end "directory, new" "$1" has "$MNT/new/dir/file" b 0

	fresh "$1"
	rmdir "$MNT/dir"
	chmod 600 "$MNT/other"
	sync "$MNT/other"
	tried
	end "directory, removed" "$1" [ ! -e "$MNT/dir" ]

	fresh "$1"
	chmod 700 "$MNT/dir"
	ext4_io "$MNT/dir/file" "pwrite -S 0x62 0 4k" fsync
	end "directory, changed" "$1" mode_is 700 "$MNT/dir"
}

# mode_is(mode, file)
mode_is() {
	local mode
	mode=$(stat -c %a "$2")
	note "mode $mode"
	[ "$mode" = "$1" ]
}

# append(file, blocks) - with O_DIRECT, each is synced
append() {
	local n args=()
	for ((n = 0; n < $2; n++)); do
		args+=(-c "pwrite -S 0x62 $((4 * n))k 4k" -c fsync)
	done
	xfs_io -f -d "${args[@]}" "$1" > /dev/null
}

run_appenders() {
	local fast
	fresh "$1" -O orphan_file
	append "$MNT/one" $APPENDED &
	PIDS=("$!")
	append "$MNT/two" $APPENDED &
	PIDS+=("$!")
	all_succeed || die "O_DIRECT"
	fast=$(($(commits) - COMMITS))
	note "$fast fast commits, $(($(commits ineligible) - INELIGIBLE)) in full"
	check "appenders, $1: they are fast commits" [ $fast -ge $((APPENDED / 2)) ]
	end appenders "$1" eval "has $MNT/one b 0 $APPENDED && has $MNT/two b 0 $APPENDED"
}

# is_empty(file) - or has it what the disk had before?
is_empty() {
	note "$(stat -c "%s bytes, %b blocks" "$1")"
	# What is behind its end may not appear.
	truncate -s 1m "$1"
	[ "$(tr -d '\0' < "$1" | wc -c)" -eq 0 ]
}

run_appending() {
	STALE=1 fresh "$1,commit=300" -O orphan_file
	: > "$MNT/file"
	sync -f "$MNT"
	began
	chmod 600 "$MNT/other"
	stand_still
	xfs_io -d -c "pwrite -q -S 0x62 0 64k" "$MNT/file" > "$WB_OUT/xfs_io" 2>&1 &
	PIDS=("$!")
	loop_until in_flight || die "nothing is on its way"
	then_run sync "$MNT/other"
	go_on
	wait "${PIDS[1]}" || die "fsync fails"
	wbdisk_set test cut 1
	committed
	wait
	end appending "$1" is_empty "$MNT/file"
}

# run_dsync(options, full|fast)
run_dsync() {
	fresh "$1,commit=300"
	: > "$MNT/file"
	sync -f "$MNT"
	began
	[ "$2" = fast ] || setfattr -n user.any -v 1 "$MNT/other" || die "no attribute"
	ext4_io "$MNT/file" "pwrite -S 0x61 0 4k" "sync_range -w -a 0 4k"
	tr '\0' b < /dev/zero | dd of="$MNT/file" bs=4k count=1 iflag=fullblock oflag=direct,dsync \
		conv=notrunc status=none || die "O_DIRECT"
	wbdisk_set test cut 1
	end "dsync, $2" "$1" has "$MNT/file" b 0
}

run_quota() {
	local user
	fresh "$1" -O quota
	for user in {1000..1060}; do
		ext4_io "$MNT/dir/$user" "pwrite -S 0x62 0 4k"
		chown "$user" "$MNT/dir/$user"
	done
	sync "$MNT/dir/1060"
	tried
	end "quota, new users" "$1" has "$MNT/dir/1060" b 0

	fresh "$1" -O quota
	ext4_io "$MNT/file" "pwrite -S 0x62 0 4k" fsync
	tried
	end "quota, one" "$1" has "$MNT/file" b 0
}

run_indirect() {
	fresh "$1" -O ^extent,^64bit
	ext4_io "$MNT/file" "pwrite -S 0x62 0 16k" fsync
	tried
	end indirect "$1" has "$MNT/file" b 0 4
}

run_migrated() {
	fresh "$1" -O ^extent,^64bit
	ext4_io "$MNT/file" "pwrite -S 0x62 0 16k"
	umount_fs "$MNT"
	tune2fs -O extent "$DISK_DEV" > /dev/null || die "no extents"
	ext4_mount "$1"
	chmod 600 "$MNT/other"
	sync -f "$MNT"
	began
	chattr +e "$MNT/file" || die "it cannot be changed"
	chmod 600 "$MNT/file"
	sync "$MNT/file"
	tried
	end migrated "$1" has "$MNT/file" b 0 4
}

# has_no_attribute(file)
has_no_attribute() {
	has "$1" b 0 && [ -z "$(getfattr -d "$1" 2> /dev/null)" ]
}

# run_attribute(options, at once|next) - in the transaction that freed the inode, or in the next
run_attribute() {
	local inode
	fresh "$1"
	ext4_io "$MNT/file" "pwrite -S 0x61 0 4k"
	setfattr -n user.secret -v old "$MNT/file" || die "no attribute"
	inode=$(stat -c %i "$MNT/file")
	sync -f "$MNT"
	rm "$MNT/file"
	[ "$2" = "at once" ] || sync -f "$MNT"
	began
	ext4_io "$MNT/file" "pwrite -S 0x62 0 4k" fsync
	[ "$(stat -c %i "$MNT/file")" -eq "$inode" ] || die "it has another inode number"
	tried
	[ "$2" = "at once" ] || committed
	end "attribute, $2" "$1" has_no_attribute "$MNT/file"
}

run_attributes() {
	fresh "$1"
	: > "$MNT/file"
	setfattr -n user.large -v "$(printf %0500d 1)" "$MNT/file" || die "no attribute"
	sync -f "$MNT"
	began
	ext4_io "$MNT/file" "pwrite -S 0x62 0 4k" fsync
	committed
	end attributes "$1" has "$MNT/file" b 0
}

run_bigalloc() {
	fresh_any "$1" -O bigalloc -C 16384
	ext4_io "$MNT/dir/file" "pwrite -S 0x62 0 64k"
	sync -f "$MNT"
	ext4_io "$MNT/file" "pwrite -S 0x62 4k 4k" fsync
	ext4_io "$MNT/dir/file" "fpunch 4k 4k" "fpunch 24k 20k" fsync
	end bigalloc "$1" has "$MNT/dir/file" b 0 1
}

run_preallocated() {
	fresh "$1"
	ext4_io "$MNT/file" "pwrite -S 0x62 0 64k" "falloc -k 64k 90m"
	sync -f "$MNT"
	began
	ext4_io "$MNT/file" "truncate 64k"
	ext4_io "$MNT/dir/file" "pwrite -S 0x63 0 60m" fsync
	tried
	end preallocated "$1" has "$MNT/dir/file" c 0 15360
}

run_resized() {
	local n
	EXT4_SIZE=$SMALL fresh "$1,commit=60" -b 1024 -G 2
	: > "$MNT/file"
	ext4_fill || die "it has blocks left"
	chmod 600 "$MNT/other"
	sync -f "$MNT"
	began
	resize2fs "$DISK_DEV" > "$WB_OUT/resize" 2>&1 &
	PIDS=("$!")
	for ((n = 0; n < 3000; n++)); do
		! xfs_io -c "pwrite -S 0x62 0 16k" -c fsync "$MNT/file" > "$WB_OUT/xfs_io" 2>&1 || break
		kill -0 "${PIDS[0]}" 2> /dev/null || break
	done
	wbdisk_set test cut 1
	wait
	end resized "$1" has "$MNT/file" b 0 4
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
	alloc_waits "$1" true
	then_run "$2" "$MNT/other"
	then_run "$3" "$MNT/other"
	ended "emptied, $1: ${2##*/}, then ${3##*/}: both end"
}

run_emptied_data() {
	data_waits "$1"
	then_run "$WB_DIR/ext4_checkpoint" "$MNT/other"
	ended "emptied, $1: while a fast commit waits for data: both end"
}

# by_kernel(results, what e2fsck does, run_part, options...) - a part, unless e2fsck replays
by_kernel() {
	local n
	if [ "${OPT[replay]}" != e2fsck ]; then
		"${@:3}"
		return
	fi
	for ((n = 1; n <= $1; n++)); do
		skip_test "${3#run_}, $4: $n of $1" "e2fsck 1.47 $2"
	done
}

wb_begin
need_wbdisk
ktap_set_plan $((2 * 42 + 7))
run_frozen delalloc
run_many delalloc
run_moved nodelalloc
run_meanwhile nodelalloc
run_allocated nodelalloc
run_skipped delalloc,lazytime
run_linked delalloc
run_replaced delalloc
run_named nodelalloc
run_appended nodelalloc
run_truncated delalloc
run_truncated_written delalloc
run_truncated_two delalloc
run_nameless delalloc
run_tmpfile delalloc
run_tmpfile delalloc fsync
run_reused delalloc
run_directory delalloc
by_kernel 3 "keeps the last blocks of many" run_appenders delalloc
run_appending delalloc
run_dsync delalloc full
run_dsync delalloc fast
run_quota delalloc
run_migrated delalloc
run_large_inodes delalloc
run_attribute delalloc "at once"
run_attribute delalloc next
by_kernel 2 "does not count their block" run_attributes delalloc
run_bigalloc delalloc
by_kernel 2 "frees blocks that another file got" run_preallocated delalloc,data=writeback
run_resized delalloc
run_evicted delalloc
run_shifted delalloc fcollapse
run_shifted delalloc finsert
run_aborted delalloc
run_zeroed nodelalloc
run_zeroed delalloc,dioread_lock
# The last: where they fail, the kernel dies, or nothing can be unmounted.
run_indirect delalloc
run_emptied_data nodelalloc
run_emptied delalloc sync "$WB_DIR/ext4_checkpoint"
run_emptied delalloc "$WB_DIR/ext4_checkpoint" sync
check_dmesg
ktap_finished
