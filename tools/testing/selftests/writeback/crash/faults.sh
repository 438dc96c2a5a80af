#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Who is told when writeback fails, and what is left of it.  On ext4 with delayed
# allocation, without it, and on XFS:
#
#	data	EIO for the data of one file: every file descriptor that was open
#		hears of it from fsync, once; one opened later only if nobody did
#	hang	a write that never completes: the block layer's timeout ends it
#	journal	EIO for the journal or its flush: the file system stops, and what
#		fsync acknowledged before is there after the journal is replayed
#	meta	EIO for metadata: the same
#	remove	the disk goes away
#	full	100 % full: write() says ENOSPC, and what it took is not lost
#	quota	the same for a user's quota and EDQUOT (ext4)
#
# After each: nothing dirty, in flight or held.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"
# shellcheck source=../lib/failing.sh
. "$WB_DIR/lib/failing.sh"

readonly PARTS="data hang journal meta remove full quota"
readonly EIO="Input/output error"
# The timer of timeouts is rounded up to a whole second (round_jiffies_up in
# block/blk-timeout.c), and looks again only when it ran.
readonly TIMEOUT_MS=500 TIMEOUT_LATE_MS=2000
# xfsaild writes metadata back when the log was idle for 30 s (xfs_syncd_centisecs).
readonly META_S=35
# Left for the last file of a full file system.
readonly FULL_MIB=24
readonly FILES=40 QUOTA_MIB=8

about title \
	"EIO for data, journal and metadata, timeouts, removal, ENOSPC, EDQUOT: who is told, what is left (ext4, XFS)"
about replays \
	"none: looks for errors that nobody or the wrong one hears of, and charges that stay"
about wall 60
about programs awk dd cmp filefrag mke2fs e2fsck debugfs dumpe2fs xfs_repair xfs_quota setpriv
about kernel CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK QUOTA QFMT_V2
axis part all "all|${PARTS// /|}" "one part, or all"
measures faults_injected_X count - "commands that failed on purpose"
measures 'faults_hang_ms_X, faults_remove_ms_X' ms lower \
	"until fsync failed, or the disk was gone"
case_parse "$@"

# overwrite(file) - its first MiB, in the page cache
overwrite() {
	dd if="$PATTERN" of="$1" bs=64k count=16 conv=notrunc status=none
}

# told(expected, fd...) - do fsyncs of these, one after the other, say this?
#	expected - a letter each, E for EIO, T for ETIMEDOUT, "-" for success
told() {
	local expected=$1 fd got=""
	shift
	for fd in "$@"; do
		case $(fd_sync "$fd") in
		ok) got+="-" ;;
		"$EIO") got+=E ;;
		"Connection timed out") got+=T ;;
		*) got+="?" ;;
		esac
	done
	[ "$got" = "$expected" ] && return
	note "fsyncs said $got, not $expected"
	return 1
}

# sync_fs() - syncfs; prints "ok" or the error
sync_fs() {
	local why
	why=$(sync -f "$MNT" 2>&1) && echo ok || echo "${why##*: }"
}

# acknowledge(N) - a file ackN; ACKED: those that fsync said are there
acknowledge() {
	dd if="$PATTERN" of="$MNT/ack$1" bs=64k count=4 conv=fsync status=none || return
	ACKED+=("ack$1")
}

acknowledge_four() {
	local i
	ACKED=()
	for i in 0 1 2 3; do
		acknowledge $i || die "cannot write to $MNT"
	done
}

# kept() - are they?  After a journal replay; leaves it unmounted.
kept() {
	local name bad=0
	mount_fs "$FS" "$DISK_DEV" "$MNT" || return
	for name in "${ACKED[@]}"; do
		cmp -s "$MNT/$name" <(head -c 256k "$PATTERN") || { note "lost: $name"; bad=1; }
	done
	umount "$MNT"
	return $bad
}

# ---- the parts -------------------------------------------------------------

test_data() {
	local file=$MNT/file start one two three far
	dd if=/dev/zero of="$file" bs=1M count=1 conv=fsync status=none
	cp "$PATTERN" "$MNT/far" && sync
	start=$(first_sector "$file")
	# shellcheck disable=SC2094 # one way each may have opened it
	exec {one}< "$file" {two}<> "$file" {far}< "$MNT/far"
	# One block: without delalloc the next ones may be the other file's.
	wbdisk_set test fail_range "write $start 8 eio"
	overwrite "$file"
	overwrite "$MNT/far"
	check "$1: data: each open file is told, once" told EE-- "$one" "$two" "$one" "$two"
	check "$1: data: not who opened it later" eval "exec {three}< $file; told - \$three"
	check "$1: data: not who has another file" told - "$far"
	exec {one}<&- {two}<&- {three}<&-
	sync_fs > /dev/null
	overwrite "$file"
	check "$1: data: syncfs is told, once" [ "$(sync_fs), $(sync_fs)" = "$EIO, ok" ]
	exec {one}< "$file" {two}< "$file"
	check "$1: data: nobody heard: who opens it next is told, once" told EE- "$one" "$two" "$one"
	exec {one}<&- {two}<&- {far}<&-
	faults_clear
	overwrite "$file"
	check "$1: data: the next write is on the disk" eval "sync $file && cmp -n 1048576 $file $PATTERN"
}

test_hang() {
	local file=$MNT/file one ms
	set_value "/sys/block/$DISK_NAME/queue/io_timeout" $TIMEOUT_MS
	dd if=/dev/zero of="$file" bs=1M count=1 conv=fsync status=none
	exec {one}< "$file"
	overwrite "$file"
	wbdisk_set test fail_range "write $(first_sector "$file") 8 timeout"
	took_ms ms told T "$one" || ms=0
	metric "faults_hang_ms_${1//[ ,]/_}" "$ms"
	check "$1: hang: fsync fails in time" \
		holds "$ms >= $TIMEOUT_MS && $ms <= $TIMEOUT_MS + $TIMEOUT_LATE_MS"
	faults_clear
	check "$1: hang: once" told - "$one"
	exec {one}<&-
}

# broken(fault) - new files until one is refused or fails; those that do not count
# as acknowledged.  Unmounts, and makes the disk work again.
broken() {
	local i
	acknowledge_four
	wbdisk_set test "${1%%=*}" "${1#*=}"
	for ((i = 10; i < FILES; i++)); do
		acknowledge $i 2> "$WB_OUT/why" || break
	done
	TOLD=$((i < FILES)) FAILED=ack$i
	[ "$TOLD" = 0 ] || note "$(tail -n 1 "$WB_OUT/why")"
}

# mended(what, result) - two results
mended() {
	check "$1: it unmounts" umount "$MNT"
	faults_clear
	# Of the file that failed nothing is known.
	mount_fs "$FS" "$DISK_DEV" "$MNT" && rm -f "$MNT/$FAILED" && umount "$MNT"
	check "$1: what fsync acknowledged is there" kept
	check "$1: the file system is consistent" consistent "$FS"
}

test_journal() {
	local first
	# XFS does not say where its log is.
	if [ "$FS" = ext4 ]; then
		first=$(debugfs -R "blocks <8>" "$DISK_DEV" 2> /dev/null | awk '{ print $1 * 8 }')
		broken "fail_range=write $first 8192 eio"
	else
		broken "fail_range=flush 0 1 eio"
	fi
	check "$1: journal: fsync fails" [ "$TOLD" = 1 ]
	check "$1: journal: and so does the next write" eval "! dd if=$PATTERN of=$MNT/more count=1 conv=fsync 2> /dev/null"
	mended "$1: journal"
}

# The fronts of the first group: no data is there.
test_meta() {
	local sectors=32
	[ "$FS" = xfs ] || sectors=$(ext4_front)
	broken "fail_range=write 0 $sectors eio"
	sync
	sleep $META_S
	check "$1: meta: the fault was met" [ "$(wbdisk_stat test errors_injected)" -gt 0 ]
	# Otherwise XFS waits for a disk that fails for ever.
	[ "$FS" = ext4 ] || faults_clear
	mended "$1: meta"
}

test_remove() {
	local file=$MNT/file one two ms bdi
	acknowledge_four
	bdi=/sys/class/bdi/$(< "/sys/block/$DISK_NAME/dev")
	[ -e "$bdi" ] || die "no $bdi"
	exec {one}<> "$file" {two}<> "$file"
	dd if="$PATTERN" of="$file" conv=notrunc status=none bs=1M &
	sleep .05
	took_ms ms wbdisk_set test power 0
	metric "faults_remove_ms_${1//[ ,]/_}" "$ms"
	wait $!
	overwrite "$file" 2> /dev/null
	check "$1: remove: each open file is told" eval "[ '$(fd_sync "$one")' != ok ] && [ '$(fd_sync "$two")' != ok ]"
	exec {one}>&- {two}>&-
	check "$1: remove: it unmounts" umount "$MNT"
	check "$1: remove: no bdi is left" [ ! -e "$bdi" ]
	wbdisk_set test power 1
	loop_until [ -b "$DISK_DEV" ]
	check "$1: remove: what fsync acknowledged is there" kept
	check "$1: remove: the file system is consistent" consistent "$FS"
}

# fill(file, cmd...) - write until it fails; TAKEN: how much, TOLD: the error
fill() {
	local file=$1 why
	shift
	why=$("$@" dd if=/dev/zero bs=64k status=none of="$file" 2>&1)
	TOLD=${why##*: }
	TAKEN=$(stat -c %s "$file")
	# The part of the last write that found room.
	note "$TAKEN bytes taken, then: $TOLD"
}

# whole(file) - nothing that was taken is lost?
whole() {
	sync "$1" && cmp -s "$1" <(head -c "$TAKEN" /dev/zero) &&
		[ $(($(stat -c %b "$1") * 512)) -ge $((TAKEN / 4096 * 4096)) ]
}

# room_is(blocks) - at least that many are free
room_is() {
	sync -f "$MNT"
	[ "$(stat -f -c %f "$MNT")" -ge "$1" ]
}

test_full() {
	local free
	free=$(stat -f -c %f "$MNT")
	cp "$PATTERN" "$MNT/old"
	fallocate -l $((free * 4096 - (FULL_MIB << 20))) "$MNT/ballast" && sync
	fill "$MNT/full"
	check "$1: full: write() is told" [ "$TOLD" = "No space left on device" ]
	check "$1: full: and nothing of what it took is lost" whole "$MNT/full"
	check "$1: full: rewriting works" eval "overwrite $MNT/full && sync $MNT/full"
	check "$1: full: nothing else is lost" cmp "$MNT/old" "$PATTERN"
	rm -f "$MNT"/*
	check "$1: full: all room is back" loop_until room_is $((free - 16))
	umount "$MNT"
	check "$1: full: the file system is consistent" consistent "$FS"
}

# used() - KiB that the quota of nobody says are in use
used() {
	quota "report -u -b -N -n" | awk '$1 == "#65534" { print $2 }'
}

used_at_most() {
	sync -f "$MNT"
	[ "$(used)" -le "$1" ]
}

test_quota() {
	if [ "$FS" != ext4 ]; then
		for i in 1 2 3 4 5; do
			skip_test "$1: quota $i" "CONFIG_XFS_QUOTA is not in this kernel's configuration"
		done
		return
	fi
	umount "$MNT"
	mke2fs -q -F -t ext4 -O quota -E "quotatype=usrquota,nodiscard,lazy_itable_init=0" "$DISK_DEV"
	mount_fs ext4 "$DISK_DEV" "$MNT" "${1#* },usrquota" || die "cannot mount with a quota"
	mkdir -m 777 "$MNT/theirs"
	quota "limit -u bsoft=0 bhard=${QUOTA_MIB}m 65534" || die "cannot set a quota"
	fill "$MNT/theirs/full" setpriv --reuid 65534 --clear-groups
	check "$1: quota: write() is told" [ "$TOLD" = "Disk quota exceeded" ]
	check "$1: quota: and nothing of what it took is lost" whole "$MNT/theirs/full"
	check "$1: quota: it is all that was allowed" \
		holds "$TAKEN > ${QUOTA_MIB} * 1048576 * .9 && $TAKEN <= $QUOTA_MIB * 1048576"
	rm -f "$MNT/theirs/full"
	check "$1: quota: all of it is back" loop_until used_at_most 4
	umount "$MNT"
	check "$1: quota: the file system is consistent" consistent ext4
}

RESULTS=([data]=7 [hang]=3 [journal]=6 [meta]=5 [remove]=6 [full]=7 [quota]=6)
wb_begin
need_wbdisk
faults_pattern 2
faults_run
for part in "${!INJECTED[@]}"; do
	metric "faults_injected_$part" "${INJECTED[$part]}"
done
check_dmesg
ktap_finished
