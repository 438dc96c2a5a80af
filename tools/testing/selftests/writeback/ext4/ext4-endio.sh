#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# ext4 when writeback fails at the last moment: an application gets its data or an
# error from fsync, and never the old content of the disk, which is 0xAA here.
#
#	nospace	every second page of a fallocated file is written while no block is
#		free and none is reserved: each page splits an extent, and soon the
#		tree needs a block
#	sequence	all of a file like that from its beginning, more than writeback submits
#		at once: the first split fails, and all of the extent is zeroed instead
#	beside	direct I/O to its first block, with a direct read of another block in flight
#	convert	the data is on the disk, but its extent cannot be marked as written
#		for lack of a block: a fallocate merged with it during the I/O
#	neighbour	two extents are under I/O when a fallocate merges them; the first is
#		done, there is no block for a split, and zeros would replace the second
#	collapse	a hole between two extents is collapsed, which merges them, while the first is
#		under I/O; there is no block for a split when the second is written
#	ahead	write() took the last blocks, unwritten, and there is none to split them for
#		what writeback submits, or msync
#	reserved	all that is free is reserved for delayed blocks, and the tree needs one,
#		too: fsync ends
#	ioerror	the disk refuses the data of unwritten blocks
#	rewrite	that disk is well again, and the same data, still in memory, is written again,
#		also as data to be journalled
#	remount	with nodelalloc while blocks are delayed: i_blocks counts them
#	journalled	a file with chattr +j is dirty when a remount ends or begins delalloc, with
#		which its data are not journalled, and is then written again
#	private	chattr changes whether a file's data are journalled: what a process wrote to
#		its private mapping of the file stays
#	switch	a remount ends dioread_nolock while data is on its way to unwritten blocks,
#		then a block of theirs is overwritten, or one is written that fallocate put,
#		or a collapse moved, behind them
#	direct	writeback of a block of an unwritten extent, with direct I/O to another one
#		in flight
#	zeroed	the tree needs a block, there is none, and the extent is zeroed instead;
#		write() has committed, then fsync, power cut
#	discarded	delayed pages are dropped for want of a block of the tree, with
#		blocks smaller than a page: what was reserved for them comes back, and a
#		journal with data_err=abort goes on, as no I/O has failed
#	partial	the same, with single free blocks: those that a page has got before space
#		ended are not marked as written without its data, at the end of a sync or
#		when the power goes while it tries again
#	shrunk	the same, by a truncate of the file while its transaction commits
#	page	space ends in the middle of a page: write() fails, it is not short
#	quota	a user writes into what fallocate gave him, his quota is used up, and
#		the extent that writeback splits in his fsync needs a block
#	trim	a file is removed, the journal fails, and what is free is discarded: the
#		removal never happened, so the file has to be there; and a discard on its
#		way outlives the journal: only a kernel with KASAN sees what that touches

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"

readonly DISK_MIB=128
readonly NOSPACE_MIB=48
# Written pages of the "nospace" file, every second one.
readonly NOSPACE_PAGES=$((NOSPACE_MIB * 256 / 2))
# The root of an extent tree, in the inode, holds 4: three and the one under I/O.
readonly ROOT_EXTENTS=4
readonly CONVERT_AT_MIB=1 CONVERT_KIB=64
# More than 2048 blocks, which writeback submits at once.
readonly SEQUENCE_MIB=9
# Longer than the test needs; ended by hand.
readonly STALL_MS=60000
# So long on its way that the other is converted before: 0.5 s
readonly NEIGHBOUR_KIB=512 NEIGHBOUR_MBPS=1
readonly SHRUNK_KIB=4
readonly IOERROR_PAGES=64
readonly REMOUNT_MIB=4
readonly JOURNALLED_KIB=64
# With as much again behind it, less than extent_max_zeroout_kb: then
# all of it is zeroed rather than split.
readonly SWITCH_KIB=12
readonly QUOTA_MIB=20 QUOTA_FALLOC_MIB=16 QUOTA_PAGES=256 QUOTA_UID=65534

# Extents that a leaf of 4 KiB holds, less those of a few more writes; each makes two.
readonly ZEROED_PAGES=165 ZEROED_TRIES=8
# More extents than a leaf of 1 KiB holds.
readonly DISCARDED_PAGES=200
# Each block an extent: more than a leaf of 1 KiB holds
readonly PARTIAL_KIB=120 PARTIAL_SINGLES=512 PARTIAL_REMOVED_KIB=64
# Some time to cut the power in
readonly PARTIAL_LATENCY_NS=200000000
# A commit takes longer than EXT4_NOSPC_WAIT, 5 s.
readonly RESERVED_STALL_MS=6000 RESERVED_S=20 RESERVED_SLOW_S=600
readonly NOSPC_TRIES=10		# EXT4_NOSPC_TRIES of fs/ext4/inode.c
# Not a number of whole pages
readonly PAGE_FREE_KIB=6
readonly TRIM_MIB=8 TRIM_JOURNAL_SECTORS=8192
# Device mappers: of each file, and the disk with both in their places.
readonly LATE_DM=(writeback-late0 writeback-late1 writeback-late)
readonly LATE_MIB=4
# How many results each has
declare -Ar RESULTS=(
	[nospace]=$((4 * ${#EXT4_MOUNTS[@]})) [sequence]=3 [beside]=3 [convert]=4 [neighbour]=5 [collapse]=5 [ahead]=4 [reserved]=6 [ioerror]=$((3 * ${#EXT4_MOUNTS[@]} - 1))
	[rewrite]=$((2 * ${#EXT4_MOUNTS[@]} + 2)) [remount]=2 [journalled]=8 [private]=4 [switch]=9 [direct]=3 [zeroed]=3 [discarded]=$((4 * 2)) [partial]=18
	[shrunk]=4 [page]=$((2 * ${#EXT4_MOUNTS[@]}))
	[quota]=$((3 * ${#EXT4_MOUNTS[@]})) [trim]=5
)

about title \
	"ext4 with no block left for a split, and with write errors: the data or an error, never old data"
about replays "none: fails on the stock kernel, which loses data and lets fsync return 0"
about wall 60
about programs awk blockdev chattr cmp dd debugfs dmsetup fallocate filefrag fstrim mke2fs e2fsck xfs_io xfs_quota setpriv
about kernel QUOTA QFMT_V2 BLK_DEV_DM
about series
case_parts nospace sequence beside convert neighbour collapse ahead reserved ioerror rewrite remount journalled private switch direct zeroed discarded partial shrunk page quota trim
measures endio_lost_X count lower \
	"blocks of 4 KiB that are not there afterwards, with or without an error from fsync"
case_parse "$@"

# fresh(options, [options of mke2fs...]) - new file system over old data
fresh() {
	local options=$1
	shift
	disk_raw fifo capacity_mib=$DISK_MIB &&
		ext4_stale $DISK_MIB && ext4_format -m 0 "$@" && ext4_mount "$options"
}

# blocks(verb, file, first, count, stride, log) - as the user who runs AS
AS=()
blocks() {
	"${AS[@]}" "$WB_DIR/fs_blocks" "$1" "$2" "${OPT[seed]}" "$3" "$4" "$5" > "$6" || return
	note "$1: $(tr '\n' ' ' < "$6")"
}

# honest(write log, verify log) - every block is there, or an error was returned
honest() {
	local lost
	lost=$(ext4_word "$2" zero)
	[ "$lost" -eq 0 ] || [ "$(ext4_word "$1" fsync_errno)" -ne 0 ] ||
		[ "$(ext4_word "$1" write_errno)" -ne 0 ]
}

# no_stale(verify log) - nothing but data and zeros
no_stale() {
	local key
	for key in stale other gap_stale gap_other; do
		[ "$(ext4_word "$1" "$key")" -eq 0 ] || return
	done
}

# run_nospace(options) - four results
run_nospace() {
	local log=$WB_OUT/nospace_${1//,/_} file=$MNT/file
	fresh "$1" || die "no file system"
	file=$MNT/file
	check "$1: the file system is full" eval "fallocate -l ${NOSPACE_MIB}M $file && ext4_fill"
	blocks write "$file" 0 "$NOSPACE_PAGES" 2 "$log.write"
	ext4_remount "$1" || die "cannot mount again"
	blocks verify "$file" 0 "$NOSPACE_PAGES" 2 "$log.verify"
	metric "endio_lost_nospace_${1//,/_}" "$(ext4_word "$log.verify" zero)"
	check "$1: full: the data, or an error" honest "$log.write" "$log.verify"
	check "$1: full: no old data" no_stale "$log.verify"
	umount_fs "$MNT"
	check "$1: full: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# root_full([options]) - FILE with all but one of the extents that fit into the root of its tree
root_full() {
	local i
	fresh "${1:-delalloc}" || die "no file system"
	FILE=$MNT/file
	for ((i = 0; i < ROOT_EXTENTS - 1; i++)); do
		dd if=/dev/zero of="$FILE" bs=4K count=1 seek=$((i * 4)) conv=notrunc,fsync status=none
	done
}

# full_of(MiB) - so much is allocated in FILE, and the file system is full
full_of() {
	root_full
	fallocate -o "${CONVERT_AT_MIB}M" -l "$1M" "$FILE" && sync -f "$MNT" && ext4_fill &&
		sync -f "$MNT"
}

# run_sequence() - three results
run_sequence() {
	local log=$WB_OUT/sequence first=$((CONVERT_AT_MIB * 256)) pages=$((SEQUENCE_MIB * 256))
	local late=no
	# Mainline splits at the end of the I/O, when more is in flight.
	ext4_ends_delalloc || late=yes
	check "sequence: the file system is full" full_of "$SEQUENCE_MIB"
	blocks write "$FILE" "$first" "$pages" 1 "$log.write"
	ext4_remount delalloc || die "cannot mount again"
	blocks verify "$FILE" "$first" "$pages" 1 "$log.verify"
	metric endio_lost_sequence "$(ext4_word "$log.verify" zero)"
	check "sequence: the data, or an error" honest "$log.write" "$log.verify"
	if [ "$late" = no ]; then
		check "sequence: nothing is lost" [ "$(ext4_word "$log.verify" zero)" -eq 0 ]
	else
		skip_test "sequence: nothing is lost" "this kernel splits extents at the end of the I/O"
	fi
	disk_teardown
}

# run_beside() - three results
run_beside() {
	local log=$WB_OUT/beside pids=()
	check "beside: the file system is full" full_of 4
	# Metadata are in memory.
	xfs_io -d -c "pread ${CONVERT_AT_MIB}m 4k" "$FILE" > /dev/null
	wbdisk_set test stall_ms "$STALL_MS"
	xfs_io -d -c "pread 0 4k" "$FILE" > "$log.read" 2>&1 &
	pids+=("$!")
	loop_until in_flight
	xfs_io -d -c "pwrite -S 0x42 ${CONVERT_AT_MIB}m 4k" "$FILE" > "$log.write" 2>&1 &
	pids+=("$!")
	sleep 1
	wbdisk_set test stall_ms 0
	wait "${pids[@]}"
	note "$(head -n 1 "$log.write")"
	check "beside: the write succeeds" grep -q 'wrote 4096/4096' "$log.write"
	ext4_remount delalloc || die "cannot mount again"
	check "beside: its data is there" [ "$(tr -dc B < "$FILE" | wc -c)" -eq 4096 ]
	disk_teardown
}

# stalled() - FILE, whose tree has room for one more extent, on a disk that stands still
stalled() {
	root_full
	# Space for the blocks behind those under I/O, and the bitmap in memory.
	fallocate -l 16M "$MNT/reserve"
	sync
	wbdisk_set test stall_ms "$STALL_MS"
}

# run_convert() - four results
run_convert() {
	local file log=$WB_OUT/convert first=$((CONVERT_AT_MIB * 256)) pages=$((CONVERT_KIB / 4)) pid
	stalled
	file=$FILE
	blocks write "$file" "$first" "$pages" 1 "$log.write" > "$WB_OUT/convert.note" &
	pid=$!
	loop_until in_flight
	ext4_falloc "$file" $((CONVERT_AT_MIB << 20 | CONVERT_KIB << 10)) $((CONVERT_KIB << 10))
	check "convert: the file system is full" ext4_fill
	wbdisk_set test stall_ms 0
	wait "$pid"
	cat "$WB_OUT/convert.note"
	ext4_remount delalloc || die "cannot mount again"
	blocks verify "$file" "$first" "$pages" 1 "$log.verify"
	metric endio_lost_convert "$(ext4_word "$log.verify" zero)"
	# On 6.12 the series does not let the two extents become one: then nothing is lost.
	if dmesg_new | grep -q 'failed to convert'; then
		ktap_test_pass "convert: the conversion fails, or both extents stay"
	else
		check "convert: the conversion fails, or both extents stay" \
			[ "$(ext4_word "$log.verify" data)" -eq "$pages" ]
	fi
	check "convert: the data, or an error" honest "$log.write" "$log.verify"
	check "convert: no old data" no_stale "$log.verify"
	disk_teardown
}

# run_neighbour() - five results
run_neighbour() {
	local file log=$WB_OUT/neighbour first=$((CONVERT_AT_MIB * 256)) pages=$((CONVERT_KIB / 4))
	local late=$((first + pages)) more=$((NEIGHBOUR_KIB / 4)) pids=()
	stalled
	file=$FILE
	blocks write "$file" "$first" "$pages" 1 "$log.write" > "$log.write.note" &
	pids+=("$!")
	loop_until in_flight
	blocks write "$file" "$late" "$more" 1 "$log.late" > "$log.late.note" &
	pids+=("$!")
	loop_until in_flight 2
	# The file has to grow; fallocate(1) would fsync.
	check "neighbour: a fallocate behind them" \
		[ -z "$(xfs_io -c "falloc $(((late + more) << 12)) ${CONVERT_KIB}k" "$file" 2>&1)" ]
	check "neighbour: the file system is full" ext4_fill
	# The first is converted while the second is on its way.
	wbdisk_set test link_mbps "$NEIGHBOUR_MBPS"
	wbdisk_set test stall_ms 0
	wait "${pids[@]}"
	cat "$log".{write,late}.note
	ext4_remount delalloc || die "cannot mount again"
	blocks verify "$file" "$first" "$pages" 1 "$log.verify"
	check "neighbour: what was written first, or an error" honest "$log.write" "$log.verify"
	blocks verify "$file" "$late" "$more" 1 "$log.verify"
	metric endio_lost_neighbour "$(ext4_word "$log.verify" zero)"
	check "neighbour: what was on its way meanwhile, or an error" honest "$log.late" "$log.verify"
	check "neighbour: no old data" [ "$(ext4_word "$log.verify" stale)" -eq 0 ]
	disk_teardown
}

# run_collapse() - five results
run_collapse() {
	local log=$WB_OUT/collapse first=$((CONVERT_AT_MIB * 256)) pages=$((CONVERT_KIB / 4)) pids=() i
	local hole="$((CONVERT_AT_MIB * 1024 + CONVERT_KIB))k ${CONVERT_KIB}k"
	fresh delalloc || die "no file system"
	FILE=$MNT/file
	for ((i = 0; i < 2; i++)); do
		dd if=/dev/zero of="$FILE" bs=4K count=1 seek=$((i * 4)) conv=notrunc,fsync status=none
	done
	# Two unwritten extents, one behind the other on the disk.
	if ! fallocate -o "${CONVERT_AT_MIB}M" -l $((2 * CONVERT_KIB))K "$FILE" ||
	   ! xfs_io -c "finsert $hole" "$FILE" || ! ext4_falloc "$MNT/spare" 0 4k; then
		die "cannot allocate"
	fi
	check "collapse: the file system is full" ext4_fill
	rm "$MNT/spare"
	sync -f "$MNT"
	wbdisk_set test stall_ms "$STALL_MS"
	blocks write "$FILE" "$first" "$pages" 1 "$log.write" > "$log.write.note" &
	pids+=("$!")
	loop_until in_flight
	# The last free block is that of an extent which leaves the root no room.
	check "collapse: beside them" [ -z "$(xfs_io -c "fcollapse $hole" -c "falloc 4m 4k" "$FILE" 2>&1)" ]
	blocks write "$FILE" $((first + pages)) "$pages" 1 "$log.late" > "$log.late.note" &
	pids+=("$!")
	sleep 2
	wbdisk_set test stall_ms 0
	wait "${pids[@]}"
	cat "$log".{write,late}.note
	ext4_remount delalloc || die "cannot mount again"
	blocks verify "$FILE" "$first" "$pages" 1 "$log.verify"
	metric endio_lost_collapse "$(ext4_word "$log.verify" zero)"
	check "collapse: what was on its way, or an error" honest "$log.write" "$log.verify"
	blocks verify "$FILE" $((first + pages)) "$pages" 1 "$log.verify"
	check "collapse: what was written behind it, or an error" honest "$log.late" "$log.verify"
	check "collapse: no old data" no_stale "$log.verify"
	disk_teardown
}

# last_blocks(options, MiB) - so much is free, and FILE needs a block of the tree soon
last_blocks() {
	root_full "$1"
	ext4_falloc "$MNT/spare" 0 "$2m" || die "no space"
	ext4_fill || die "not full"
	rm "$MNT/spare"
	sync -f "$MNT"
	set_dirty background_bytes $((512 << 20))
	set_dirty bytes $((800 << 20))
}

# taken(log) - bytes that write() took of FILE and that are not there after a remount
taken() {
	echo $(($(sed -n 's|^wrote \([0-9]*\)/.*|\1|p' "$1") - $(tr -dc B < "$FILE" | wc -c)))
}

# run_ahead(MiB, [KiB]) - two results; so much is written alone first
run_ahead() {
	local options=nodelalloc,dioread_nolock log=$WB_OUT/ahead_$1 what lost
	what="ahead: $1 MiB${2:+, $2 KiB first}"
	last_blocks "$options" "$1"
	xfs_io -c "pwrite -S 0x42 -b $1m 1m $1m" "$FILE" > "$log"
	[ -z "${2:-}" ] || xfs_io -c "mmap -rw 1m $2k" -c "msync -s 1m $2k" "$FILE"
	sync "$FILE"
	ext4_remount "$options" || die "cannot mount again"
	lost=$(taken "$log")
	metric "endio_lost_ahead_$1" "$lost"
	check "$what: what write() took is there" [ "$lost" -eq 0 ]
	umount_fs "$MNT"
	check "$what: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# stalls(ms) - the disk stands still for so long, again and again, until "$WB_OUT/stalls" goes
stalls() {
	touch "$WB_OUT/stalls"
	while [ -e "$WB_OUT/stalls" ]; do
		wbdisk_set test stall_ms "$1"
		sleep "$(calc "$1 / 1e3 + 0.01")"
	done
}

# run_reserved(MiB, [ms]) - three results; on a disk that stands still for so long, too
run_reserved() {
	local log=$WB_OUT/reserved pid ends=no synced=no before what=reserved seconds=$RESERVED_S
	local stalls=
	[ -z "${2:-}" ] || what+=", slow commits" seconds=$RESERVED_SLOW_S
	last_blocks delalloc "$1"
	before=$(commits)
	xfs_io -c "pwrite -S 0x42 -b $1m 1m $1m" "$FILE" > "$log"
	# Short of space, the flusher begins, and what it has written is converted.
	sleep 3
	if [ -n "${2:-}" ]; then
		stalls "$2" &
		stalls=$!
	fi
	sync "$FILE" &
	pid=$!
	! tasks_end "$seconds" "$pid" || ends=yes
	before=$(($(commits) - before))
	note "$what: $before commits"
	check "$what: fsync ends" [ "$ends" = yes ]
	# With space it does.
	[ "$ends" = yes ] || rm "$MNT/fill0"
	! wait "$pid" || synced=yes
	rm -f "$WB_OUT/stalls"
	[ -z "$stalls" ] || wait "$stalls"
	wbdisk_set test stall_ms 0
	check "$what: no error before $NOSPC_TRIES commits" \
		eval "[ $synced = yes ] || [ $before -ge $NOSPC_TRIES ]"
	ext4_remount delalloc || die "cannot mount again"
	check "$what: the data, or an error" eval "[ $synced = no ] || [ $(taken "$log") -eq 0 ]"
	disk_teardown
}

# refused(options, log) - a new file system; the disk refuses IOERROR_PAGES of FILE, then
# it is well again
refused() {
	local start
	fresh "$1" || die "no file system"
	FILE=$MNT/file
	fallocate -l 1M "$FILE" && sync
	start=$(first_sector "$FILE")
	wbdisk_set test fail_range "write $start $((IOERROR_PAGES * 8)) eio"
	blocks write "$FILE" 0 "$IOERROR_PAGES" 1 "$2"
	wbdisk_set test fail_range ""
}

# run_ioerror(options) - two or three results
run_ioerror() {
	local log=$WB_OUT/ioerror_${1//,/_}
	refused "$1" "$log.write"
	ext4_remount "$1" || die "cannot mount again"
	blocks verify "$FILE" 0 "$IOERROR_PAGES" 1 "$log.verify"
	check "$1: I/O error: fsync fails" [ "$(ext4_word "$log.write" fsync_errno)" -ne 0 ]
	# Blocks that were allocated as written show what the disk had there.
	[ "$1" = nodelalloc ] ||
		check "$1: I/O error: no old data" no_stale "$log.verify"
	umount_fs "$MNT"
	check "$1: I/O error: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# run_rewrite(options, [attribute]) - two results; the file gets that attribute in between
run_rewrite() {
	local log=$WB_OUT/rewrite_${1//,/_} what="$1: written again${2:+ with $2}"
	refused "$1" "$log.first"
	# It may have to hear of the error, too.
	[ -z "${2:-}" ] || chattr "$2" "$FILE" 2> /dev/null || chattr "$2" "$FILE" || die "no $2"
	blocks write "$FILE" 0 "$IOERROR_PAGES" 1 "$log.write"
	check "$what: fsync succeeds" \
		[ "$(ext4_word "$log.first" fsync_errno) $(ext4_word "$log.write" fsync_errno)" = "5 0" ]
	ext4_remount "$1" || die "cannot mount again"
	blocks verify "$FILE" 0 "$IOERROR_PAGES" 1 "$log.verify"
	metric "endio_lost_rewrite_${1//,/_}${2:+_journalled}" $((IOERROR_PAGES - $(ext4_word "$log.verify" data)))
	check "$what: all of it is there" [ "$(ext4_word "$log.verify" data)" -eq "$IOERROR_PAGES" ]
	disk_teardown
}

# run_remount() - two results
run_remount() {
	fresh delalloc || die "no file system"
	dd if=/dev/zero of="$MNT/file" bs=1M count="$REMOUNT_MIB" status=none
	mount -o remount,nodelalloc "$MNT" || die "cannot remount"
	sync "$MNT/file"
	check "remount: st_blocks has what was delayed" \
		[ "$(stat -c %b "$MNT/file")" -ge $((REMOUNT_MIB * 2048)) ]
	umount_fs "$MNT"
	check "remount: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# letters(letter) - JOURNALLED_KIB of it
letters() {
	head -c "${JOURNALLED_KIB}K" /dev/zero | tr '\0' "$1"
}

# run_journalled(options, options of the remount) - four results
run_journalled() {
	local file=$MNT/file
	fresh "$1" || die "no file system"
	if ! { touch "$file" && chattr +j "$file"; }; then
		die "$1: no journalled data"
	fi
	letters A >> "$file"
	mount -o "remount,$2" "$MNT" || die "no remount with $2"
	check "$1, then $2: what was dirty is written" sync "$file"
	check "$1, then $2: what comes then is, too" eval "letters B >> $file && sync $file"
	ext4_remount "$1" || die "no mount with $1"
	check "$1, then $2: the data is there" eval "cmp $file <(letters A; letters B)"
	umount_fs "$MNT"
	check "$1, then $2: e2fsck finds no error" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# run_switch(from, to, overwrite, behind or collapse) - one result
run_switch() {
	local file pid where=$((2 * 4096)) what="$1 to $2 with data in flight, $3"
	local kib="${SWITCH_KIB}k ${SWITCH_KIB}k"
	fresh "$1" || die "no file system"
	file=$MNT/file
	# Metadata is in memory, and nothing else is on its way.
	xfs_io -f -c "pwrite -S 0x41 0 16k" -c "truncate 0" "$file" > /dev/null
	# Two unwritten extents, one behind the other on the disk.
	[ "$3" != collapse ] || xfs_io -c "falloc 0 $((2 * SWITCH_KIB))k" -c "finsert $kib" "$file" ||
		die "cannot allocate"
	sync
	wbdisk_set test stall_ms "$STALL_MS"
	xfs_io -c "pwrite -S 0x41 0 $SWITCH_KIB""k" -c fdatasync "$file" > "$WB_OUT/switch" &
	pid=$!
	loop_until in_flight
	case $3 in
	# fallocate(1) would fsync the file.
	behind) xfs_io -c "falloc $kib" "$file" || die "cannot fallocate" ;;
	collapse) xfs_io -c "fcollapse $kib" "$file" || die "cannot collapse" ;;
	esac
	[ "$3" = overwrite ] || where=$((SWITCH_KIB << 10))
	# Whoever waits, waits for the disk.
	rm -f "$WB_OUT/switched"
	{
		mount -o "remount,$2" "$MNT" && touch "$WB_OUT/switched" &&
			xfs_io -c "pwrite -S 0x42 $where 4k" -c fdatasync "$file" > /dev/null
	} &
	sleep 2
	wbdisk_set test stall_ms 0
	wait "$pid" || note "the write failed"
	wait
	[ -e "$WB_OUT/switched" ] || die "$1: cannot remount with $2"
	ext4_remount "$1" || die "cannot mount again"
	head -c $((SWITCH_KIB << 10)) "$file" | tr -d 'AB' | wc -c > "$WB_OUT/lost"
	note "$what: $(cat "$WB_OUT/lost") bytes of $((SWITCH_KIB << 10)) are lost"
	metric "endio_lost_switch_${3}_${1//,/_}_to_${2//,/_}" "$(cat "$WB_OUT/lost")"
	check "$what: nothing is lost" [ "$(cat "$WB_OUT/lost")" -eq 0 ]
	ext4_end
}

# run_direct(from, to) - one result
run_direct() {
	local file pid what="$1: direct${2:+, then $2}" lost
	fresh "$1" || die "no file system"
	file=$MNT/file
	set_dirty writeback_centisecs 0
	fallocate -l ${SWITCH_KIB}k "$file" && sync
	xfs_io -c "pwrite -S 0x42 8k 4k" "$file" > /dev/null
	wbdisk_set test stall_ms "$STALL_MS"
	xfs_io -d -c "pwrite -S 0x41 0 4k" "$file" > "$WB_OUT/direct" &
	pid=$!
	loop_until in_flight
	# Whoever waits, waits for the disk.
	{
		{ [ -z "${2:-}" ] || mount -o "remount,$2" "$MNT"; } &&
			sync -d "$file"
	} &
	sleep 2
	wbdisk_set test stall_ms 0
	wait "$pid" || note "the write failed"
	wait
	ext4_remount "$1" || die "cannot mount again"
	lost=$((8192 - $(tr -d '\0' < "$file" | wc -c)))
	note "$what: $lost bytes of 8192 are lost"
	check "$what: nothing is lost" [ "$lost" -eq 0 ]
	ext4_end
}

# run_zeroed() - three results
run_zeroed() {
	local file i block zeroed=0
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1
	ext4_stale $DISK_MIB
	ext4_new delalloc -m 0
	file=$MNT/file
	fallocate -l 4M "$file" || die "no space"
	touch "$MNT/other"
	blocks write "$file" 1 "$ZEROED_PAGES" 2 "$WB_OUT/zeroed"
	check "zeroed: the file system is full" ext4_fill
	sync -f "$MNT"
	for ((i = 0; i < ZEROED_TRIES && !zeroed; i++)); do
		block=$((2 * (ZEROED_PAGES + i) + 1))
		xfs_io -c "pwrite -S 0x42 $((block * 4))k 4k" "$file" > /dev/null
		# A commit with the new mtime of the file
		chmod "60$((i % 8))" "$MNT/other" && sync "$MNT/other"
		sync "$file"
		# The block in front of it became written, too.
		filefrag -v "$file" |
			awk -v b="$block" '$2 + 0 < b && $3 + 0 == b { found = 1 } END { exit !found }' && zeroed=1
	done
	ext4_power_cut delalloc || die "cannot mount after the cut"
	check "zeroed: an extent was, at the end" [ "$zeroed" -eq 1 ]
	check "zeroed: the data is there" \
		cmp -s -i "$((block * 4096)):0" -n 4096 "$file" <(head -c 4096 /dev/zero | tr '\0' B)
	umount_fs "$MNT"
	disk_teardown
}

# run_discarded(options) - four results
run_discarded() {
	local lines reserved
	lines=$(dmesg_new | wc -l)
	fresh "$1" -b 1024 || die "no file system"
	set_dirty writeback_centisecs 0
	"$WB_DIR/fs_blocks" make "$MNT/file" "${OPT[seed]}" 0 "$DISCARDED_PAGES" 2 > /dev/null
	check "$1: discarded: the file system is full" ext4_fill
	check "$1: discarded: fsync says so" eval "! sync $MNT/file 2> /dev/null"
	sync -f "$MNT"
	# Before the inode goes, with which all that it has reserved comes back.
	reserved=$(ext4_attr delayed_allocation_blocks)
	note "$1: discarded: $reserved blocks are reserved"
	check "$1: discarded: the journal goes on" touch "$MNT/other"
	umount_fs "$MNT"
	check "$1: discarded: nothing stays reserved" \
		eval "[ $reserved -eq 0 ] && ! dmesg_new | tail -n +$((lines + 1)) | grep -q 'not cleared\|s_dirtyclusters'"
	disk_teardown
}

# singles(options, [attributes of the disk...]) - FILE has as many delayed blocks as there
# are free ones, which are single: each is an extent, and the tree needs some, too
singles() {
	local i args=()
	disk_raw fifo capacity_mib=$DISK_MIB "${@:2}"
	ext4_stale $DISK_MIB
	ext4_new "$1" -m 0 -b 1024
	FILE=$MNT/file
	set_dirty writeback_centisecs 0
	ext4_falloc "$MNT/removed" 0 ${PARTIAL_REMOVED_KIB}k || die "no space"
	ext4_falloc "$MNT/single" 0 $((2 * PARTIAL_SINGLES))k || die "no space"
	for ((i = 0; i < PARTIAL_SINGLES; i++)); do
		args+=(-c "fpunch $((2 * i))k 1k")
	done
	xfs_io "${args[@]}" "$MNT/single"
	sync -f "$MNT"
	xfs_io -f -c "truncate ${PARTIAL_KIB}k" -c "pwrite -S 0x42 0 ${PARTIAL_KIB}k" "$FILE" > /dev/null
	ext4_fill || die "not full"
}

# no_old_data(what) - in FILE
no_old_data() {
	local old
	old=$(tr -d 'B\0' < "$FILE" | wc -c)
	note "$1: $old bytes are old data, $(tr -d '\0' < "$FILE" | wc -c) are there"
	[ "$old" -eq 0 ]
}

# commits() - how many were made
commits() {
	awk 'NR == 1 { print $1 }' "/proc/fs/jbd2/$DISK_NAME-8/info"
}

# run_partial(options) - three results
run_partial() {
	singles "$1"
	check "$1: partial: fsync says so" eval "! sync $FILE 2> /dev/null"
	ext4_remount "$1" || die "cannot mount again"
	check "$1: partial: no old data" no_old_data "$1: partial"
	umount_fs "$MNT"
	check "$1: partial: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# check_unless(why, description, command...) - a result, skipped where there is a why
check_unless() {
	if [ -n "$1" ]; then
		skip_test "$2" "$1"
	else
		check "${@:2}"
	fi
}

# run_again(options) - five results
#	Blocks that were removed are free after a commit, so writeback has one made, and goes
#	on.  The power goes after that commit, and after all.
run_again() {
	local before what lines why synced
	for what in commit sync; do
		singles "$1" write_cache=1 lazy_cache=1 latency_ns="$PARTIAL_LATENCY_NS"
		before=$(commits)
		rm "$MNT/removed"
		if [ "$what" = commit ]; then
			sync "$FILE" 2> /dev/null &
			loop_until eval "[ \$(commits) -gt $before ]"
		else
			lines=$(dmesg_new | wc -l)
			why="" synced=yes
			if ! sync "$FILE"; then
				synced=no
				# The extent tree has no block for a split either.
				dmesg_new | tail -n +$((lines + 1)) | grep -q "failed to convert .*error -28" &&
					why="no block to split an extent, which fsync reported"
			fi
			check_unless "$why" "$1: partial, tried again: fsync is done" [ "$synced" = yes ]
		fi
		ext4_power_cut "$1" || die "cannot mount after the cut"
		wait
		check "$1: partial, tried again, cut after $what: no old data" \
			no_old_data "$1: partial, tried again, cut after $what"
		[ "$what" = commit ] ||
			check_unless "$why" "$1: partial, tried again: all is there" \
				cmp -s "$FILE" <(head -c "${PARTIAL_KIB}K" /dev/zero | tr '\0' B)
		umount_fs "$MNT"
		check "$1: partial, tried again, cut after $what: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
		disk_teardown
	done
}

# run_shrunk(options) - four results
#	The truncate writes what is behind the new end, and gets no block for that.
run_shrunk() {
	local lines
	singles "$1"
	touch "$MNT/other"
	sync "$MNT/other"
	lines=$(dmesg_new | wc -l)
	wbdisk_set test stall_ms "$STALL_MS"
	xfs_io -c "sync_range -w 0 ${SHRUNK_KIB}k" "$FILE"
	chmod 600 "$MNT/other"
	sync "$MNT/other" &
	sleep 1
	truncate -s "${SHRUNK_KIB}k" "$FILE" &
	sleep 1
	wbdisk_set test stall_ms 0
	wait
	check "$1: shrunk: there is no block for all of it" \
		eval "dmesg_new | tail -n +$((lines + 1)) | grep -q 'Data will be lost'"
	check "$1: shrunk: the journal goes on" eval "chmod 644 $MNT/other && sync $MNT/other"
	check "$1: shrunk: what is left is there" \
		cmp -s "$FILE" <(head -c "${SHRUNK_KIB}K" /dev/zero | tr '\0' B)
	umount_fs "$MNT"
	check "$1: shrunk: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# run_page(options) - two results
run_page() {
	local log=$WB_OUT/page_${1//,/_}
	fresh "$1" -b 1024 || die "no file system"
	ext4_falloc "$MNT/spare" 0 ${PAGE_FREE_KIB}k || die "no space"
	ext4_fill || die "not full"
	rm "$MNT/spare"
	sync -f "$MNT"
	blocks write "$MNT/file" 0 4 1 "$log"
	# EIO would be a short write.
	check "$1: page: a write() without room for its page fails with ENOSPC" \
		[ "$(ext4_word "$log" write_errno)" -eq 28 ]
	umount_fs "$MNT"
	check "$1: page: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# run_quota(options) - three results
run_quota() {
	local i file log=$WB_OUT/quota_${1//,/_} first written there
	# Another -E would replace that of ext4_format.
	fresh "$1,usrquota" -O quota || die "no file system"
	file=$MNT/theirs/file
	mkdir -m 777 "$MNT/theirs"
	quota "limit -u bsoft=0 bhard=${QUOTA_MIB}m $QUOTA_UID" || die "cannot set a quota"
	AS=(setpriv --reuid "$QUOTA_UID" --clear-groups)
	for ((i = 0; i < ROOT_EXTENTS - 1; i++)); do
		"${AS[@]}" dd if=/dev/zero of="$file" bs=4K count=1 seek=$((i * 4)) conv=notrunc,fsync status=none
	done
	# Behind the end of the file, so that the rest of the extent cannot be zeroed.
	"${AS[@]}" fallocate -n -o 1M -l "${QUOTA_FALLOC_MIB}M" "$file" || die "no space"
	"${AS[@]}" dd if=/dev/zero of="$MNT/theirs/rest" bs=4K status=none 2> /dev/null
	sync -f "$MNT"
	check "$1: quota: it is used up" \
		eval "! ${AS[*]} dd if=/dev/zero of=$MNT/theirs/more bs=4K count=1 status=none 2> /dev/null"
	first=$(((QUOTA_FALLOC_MIB / 2) * 256))
	blocks write "$file" "$first" "$QUOTA_PAGES" 1 "$log.write"
	AS=()
	ext4_remount "$1" || die "cannot mount again"
	blocks verify "$file" "$first" "$QUOTA_PAGES" 1 "$log.verify"
	written=$(ext4_word "$log.write" written)
	there=$(ext4_word "$log.verify" data)
	metric "endio_lost_quota_${1//,/_}" $((written - there))
	check "$1: quota: what write() took is there" holds "$written > 0 && $written <= $there"
	umount_fs "$MNT"
	check "$1: quota: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# run_trim(options) - two results
run_trim() {
	local journal
	fresh "$1" || die "no file system"
	head -c "${TRIM_MIB}M" /dev/zero | tr '\0' B > "$MNT/file"
	sync -f "$MNT"
	journal=$(debugfs -R "blocks <8>" "$DISK_DEV" 2> /dev/null | awk '{ print $1 * 8 }')
	wbdisk_set test fail_range "write $journal $TRIM_JOURNAL_SECTORS eio"
	rm "$MNT/file"
	sync -f "$MNT" 2> /dev/null
	check "$1: trim: the journal is aborted" eval "dmesg_new | grep -q 'Aborting journal'"
	# "discard" does it on its own, behind the commit.
	if [[ $1 = *discard ]]; then
		sleep 1
	else
		note "$(fstrim -v "$MNT" 2>&1)"
	fi
	wbdisk_set test fail_range ""
	umount "$MNT"
	ext4_mount "$1" || die "cannot mount again"
	check "$1: trim: the file is there" \
		cmp -s "$MNT/file" <(head -c "${TRIM_MIB}M" /dev/zero | tr '\0' B)
	umount_fs "$MNT"
	disk_teardown
}

# late_map(number, table) - sets LATE_DEV
late_map() {
	dmsetup create "${LATE_DM[$1]}" --noudevsync --table "$2" || return
	on_exit late_unmap "$1"
	LATE_DEV=/dev/$(dmsetup info -c --noheadings -o blkdevname "${LATE_DM[$1]}")
	loop_until [ -b "$LATE_DEV" ]
}

late_unmap() {
	! dmsetup info "${LATE_DM[$1]}" > /dev/null 2>&1 ||
		dmsetup remove --retry --noudevsync "${LATE_DM[$1]}"
}

# run_late() - one result
#	The discard of the first file waits while the second one is freed and a block in
#	its middle is used again: so its discard has two parts, and the first of them waits
#	while the file system is unmounted.
run_late() {
	local first second size below len=$((LATE_MIB * 2048)) pid i
	fresh delalloc || die "no file system"
	for i in first second; do
		ext4_falloc "$MNT/$i" 0 "${LATE_MIB}m" || die "no space"
	done
	sync -f "$MNT"
	first=$(first_sector "$MNT/first")
	second=$(first_sector "$MNT/second")
	ext4_fill || die "not full"
	umount_fs "$MNT"
	[[ $first -gt 0 && $second -ge $((first + len)) ]] || die "the files are at $first and $second"
	size=$(blockdev --getsz "$DISK_DEV")
	below=$DISK_DEV
	late_map 0 "0 $((second - first)) linear $below $first" || die "no dm-linear"
	i=$LATE_DEV
	late_map 1 "0 $len linear $below $second" || die "no dm-linear"
	late_map 2 "0 $first linear $below 0
$first $((second - first)) linear $i 0
$second $len linear $LATE_DEV 0
$((second + len)) $((size - second - len)) linear $below $((second + len))" || die "no dm-linear"
	mount_fs ext4 "$LATE_DEV" "$MNT" discard || die "cannot mount"
	for i in 0 1; do
		dmsetup suspend --nolockfs --noflush --noudevsync "${LATE_DM[i]}"
	done
	for i in first second; do
		rm "$MNT/$i"
		sync -f "$MNT"
	done
	if ! { ext4_falloc "$MNT/part" 0 1m && ext4_falloc "$MNT/hole" 0 4k; }; then
		die "the second file is not free"
	fi
	rm "$MNT/part"
	sync -f "$MNT"
	dmsetup resume --noudevsync "${LATE_DM[0]}"
	sleep 1
	umount "$MNT" &
	pid=$!
	sleep 1
	dmsetup resume --noudevsync "${LATE_DM[1]}"
	wait "$pid"
	check "late: the file system can be unmounted under a discard" eval "! grep -q ' $MNT ' /proc/self/mounts"
	for i in 2 1 0; do
		late_unmap "$i"
	done
	fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# each(cmd...) - once for each way to mount
each() {
	local options
	for options in "${EXT4_MOUNTS[@]}"; do
		"$@" "$options"
	done
}

test_nospace() {
	each run_nospace
}

test_convert() {
	run_convert
}

test_sequence() {
	run_sequence
}

test_beside() {
	run_beside
}

test_neighbour() {
	run_neighbour
}

test_collapse() {
	run_collapse
}

test_ahead() {
	run_ahead 16
	run_ahead 1 64
}

test_reserved() {
	run_reserved 16
	run_reserved 16 "$RESERVED_STALL_MS"
}

test_ioerror() {
	each run_ioerror
}

test_rewrite() {
	each run_rewrite
	run_rewrite delalloc +j
}

test_remount() {
	if ext4_ends_delalloc; then
		run_remount
	else
		ktap_test_skip "remount: st_blocks: a remount does not end delalloc here"
		ktap_test_skip "remount: e2fsck: a remount does not end delalloc here"
	fi
}

test_journalled() {
	local what
	if ext4_ends_delalloc; then
		run_journalled delalloc nodelalloc
	else
		for what in "what was dirty" "what comes then" data e2fsck; do
			ktap_test_skip "delalloc, then nodelalloc: $what: a remount does not end delalloc here"
		done
	fi
	run_journalled nodelalloc delalloc
}

# run_private(options) - two results
run_private() {
	local change file
	fresh "$1" || die "cannot mount ext4"
	file=$MNT/private
	for change in +j -j; do
		check "private $1: a mapping keeps what was written to it, chattr $change" \
			"$WB_DIR/private_mapping" "$file" chattr "$change" "$file"
	done
	disk_teardown
}

test_private() {
	run_private delalloc
	run_private nodelalloc
}

test_switch() {
	local how ends=no
	! ext4_ends_delalloc || ends=yes
	for how in overwrite behind collapse; do
		if [ "$ends" = yes ]; then
			run_switch delalloc nodelalloc,dioread_lock "$how"
		else
			ktap_test_skip "delalloc to nodelalloc,dioread_lock, $how: a remount does not end delalloc here"
		fi
		run_switch delalloc delalloc,dioread_lock "$how"
		run_switch nodelalloc,dioread_nolock nodelalloc,dioread_lock "$how"
	done
}

test_direct() {
	run_direct delalloc,dioread_lock
	run_direct delalloc delalloc,dioread_lock
	run_direct nodelalloc,dioread_nolock nodelalloc,dioread_lock
}

test_zeroed() {
	run_zeroed
}

test_discarded() {
	run_discarded delalloc
	run_discarded delalloc,dioread_lock,data_err=abort
}

test_partial() {
	run_partial delalloc
	run_partial delalloc,dioread_lock
	run_again delalloc
	run_again delalloc,dioread_lock
}

test_shrunk() {
	run_shrunk delalloc,dioread_lock
}

test_page() {
	each run_page
}

test_quota() {
	each run_quota
}

test_trim() {
	run_trim delalloc
	run_trim delalloc,discard
	run_late
}

wb_begin
need_wbdisk
[ -x "$WB_DIR/fs_blocks" ] || skip_all "fs_blocks is not built"
run_parts
