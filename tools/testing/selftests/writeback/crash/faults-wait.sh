#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# How long writers and those who wait for writeback are held when something stands
# still, and what is left then.  On ext4 with delayed allocation, without it, and
# on XFS:
#
#	stall	  the disk stands still for 1, 10 and 60 s: fsync and a change of the
#		  scheduler take that long and no longer, another disk does not wait
#	kill	  SIGKILL to a writer that is throttled, and to one that writes back
#		  and waits for wbt or for a slow disk
#	memory	  a cgroup of 16 MiB and a machine with little memory write more than that
#	freeze	  fsfreeze under a writer
#	remount	  read-only and back
#	suspend	  dm-linear suspended, with and without freezing the file system
#
# After each: nothing dirty, in flight or held.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"
# shellcheck source=../lib/failing.sh
. "$WB_DIR/lib/failing.sh"

readonly PARTS="stall kill memory freeze remount suspend"
readonly STALLS_S="1 10 60"
# 8 MiB and its metadata are 16 ms of the disk's link.  wbt's window is 100 ms, and
# after a stall it may let a single write through: 7 writes of 1280 KiB.
readonly DIRTY_MIB=8 MARGIN_MS=1000
# A throttled writer sleeps 200 ms at most (MAX_PAUSE in mm/page-writeback.c), and a
# signal ends that.
readonly KILL_MS=300
readonly SLOW_MBPS=8 SLOW_MIB=16
readonly MEMORY_MIB=64 CGROUP_BYTES=16777216 SPARE_MIB=96 RAM_MIB=8192
readonly SUSPEND_S=3	# and a second of CPU time

about title \
	"stalls of 1 to 60 s, SIGKILL, little memory, freeze, remount, suspend: who waits how long (ext4, XFS)"
about replays \
	"none: looks for hangs, for waits longer than the disk's own, and for charges that stay"
about wall 60
about programs awk dd cmp mke2fs xfs_io fsfreeze dmsetup
about kernel BLK_DEV_DM CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK MD
about not_fast "where a cgroup's reclaim gives up before any time has passed"
axis part all "all|${PARTS// /|}" "one part, or all"
measures 'faults_kill_ms_X, faults_kill_fsync_ms_X, faults_memory_ms_X' ms lower \
	"until a killed task was gone, or 64 MiB were written"
measures faults_excess_ms ms lower "longest wait beyond the disk's own"
case_parse "$@"

# dirty(file, MiB) - in the page cache
dirty() {
	dd if="$PATTERN" of="$1" bs=1M count="$2" conv=notrunc status=none
}

# in_or_gone(pid, function) - is it in one of that name, or is the task gone?
in_or_gone() {
	grep -qE "$2" "/proc/$1/stack" 2> /dev/null || [ ! -e "/proc/$1/stack" ]
}

# waits_in(pid, function) - until its stack has a function of that name
waits_in() {
	loop_until in_or_gone "$1" "$2"
	grep -qE "$2" "/proc/$1/stack" 2> /dev/null
}

# still(seconds) - does the disk write nothing in this time?
still() {
	local writes
	writes=$(wbdisk_stat test writes)
	sleep "$1"
	[ "$(wbdisk_stat test writes)" = "$writes" ]
}

# in_time(ms, seconds) - no longer than that and the margin?
in_time() {
	EXCESS=$(($1 - $2 * 1000 > EXCESS ? $1 - $2 * 1000 : EXCESS))
	holds "$1 <= $2 * 1000 + $MARGIN_MS"
}

# ---- the parts -------------------------------------------------------------

test_stall() {
	local s ms
	for s in $STALLS_S; do
		dirty "$MNT/file" $DIRTY_MIB
		wbdisk_set test stall_ms $((s * 1000))
		took_ms ms sync "$MNT/file"
		check "$1: stall of $s s: fsync succeeds, not much later" in_time "$ms" "$s"
		check "$1: stall of $s s: not before, either" holds "$ms >= $s * 1000 - 10"
	done
	# Whoever changes the scheduler waits for every request.
	save_value "/sys/block/$DISK_NAME/queue/scheduler"
	disk_beside ext4 beside fifo
	wbdisk_set test stall_ms 3000
	dirty "$MNT/file" $DIRTY_MIB
	sync "$MNT/file" &
	sleep .2
	dirty /mnt/beside/file $DIRTY_MIB
	took_ms ms sync /mnt/beside/file
	check "$1: another disk does not wait" in_time "$ms" 0
	took_ms ms set_value "/sys/block/$DISK_NAME/queue/scheduler" bfq
	check "$1: a change of the scheduler waits for the stall only" in_time "$ms" 3
	wait
	disk_drop beside
}

test_kill() {
	local pid ms
	set_dirty background_bytes 2097152
	set_dirty bytes 4194304
	wbdisk_set test link_mbps 1
	dd if=/dev/zero of="$MNT/file" bs=64k count=4096 status=none &
	pid=$!
	check "$1: kill: the writer is throttled" waits_in $pid balance_dirty_pages
	kill -KILL $pid
	took_ms ms wait $pid 2> /dev/null
	metric "faults_kill_ms_${1//[ ,]/_}" "$ms"
	check "$1: kill: it is gone at once" holds "$ms <= $KILL_MS"
	wbdisk_set test link_mbps $SLOW_MBPS
	restore_dirty
	rm -f "$MNT/file"
	sync
	dirty "$MNT/file" $SLOW_MIB
	xfs_io -c "sync_range -w 0 ${SLOW_MIB}m" -c fsync "$MNT/file" &
	pid=$!
	waits_in $pid 'rq_qos_wait|wbt_|folio_wait_writeback'
	note "it waits in $(awk 'NR < 4 { sub(/.*\] /, ""); sub(/\+.*/, ""); printf "%s ", $0 }' "/proc/$pid/stack")"
	kill -KILL $pid
	took_ms ms wait $pid 2> /dev/null
	metric "faults_kill_fsync_ms_${1//[ ,]/_}" "$ms"
	# It has to wait for what was submitted.
	check "$1: kill: who waits for writeback ends when the data is written" in_time "$ms" $((SLOW_MIB * 1048576 / SLOW_MBPS / 1000000 + 1))
}

test_memory() {
	local free ms
	cgroup_create "${1//[ ,]/_}" $CGROUP_BYTES
	cgroup_run "${1//[ ,]/_}" dd if="$PATTERN" of="$MNT/file" bs=1M conv=fsync status=none
	check "$1: memory: a cgroup writes more than it may have" [ $? = 0 ]
	check "$1: memory: without an OOM kill" [ "$(awk '$1 == "oom_kill" { print $2 }' "$CGROUP/memory.events")" = 0 ]
	check "$1: memory: and all of it" cmp "$MNT/file" "$PATTERN"
	rm -f "$MNT/file"
	free=$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo)
	if [ "$free" -gt $RAM_MIB ]; then
		skip_test "$1: memory: so does a machine with little of it" "more than $RAM_MIB MiB to fill"
		return
	fi
	mount_fs tmpfs fill /mnt/fill size=100% && fallocate -l $((free - SPARE_MIB))M /mnt/fill/fill
	note "$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo) of $free MiB left"
	took_ms ms dd if="$PATTERN" of="$MNT/file" bs=1M conv=fsync status=none
	check "$1: memory: so does a machine with little of it" cmp "$MNT/file" "$PATTERN"
	metric "faults_memory_ms_${1//[ ,]/_}" "$ms"
	umount_fs /mnt/fill
}

# pieces() - a file, in no hurry
pieces() {
	local i
	for ((i = 0; i < MEMORY_MIB; i++)); do
		dd if="$PATTERN" of="$MNT/file" bs=1M count=1 skip=$i seek=$i conv=notrunc status=none
		sleep .05
	done
	sync "$MNT/file"
}

test_freeze() {
	local pid ms alone
	took_ms alone pieces
	rm "$MNT/file"
	wbdisk_set test link_mbps $SLOW_MBPS
	dirty "$MNT/old" 2
	pieces &
	pid=$!
	sleep .5
	fsfreeze -f "$MNT"
	check "$1: freeze: with a writer" [ $? = 0 ]
	wbdisk_set test link_mbps 1000
	sleep .1
	check "$1: freeze: nothing is written" still 5
	check "$1: freeze: files can be read" cmp -n 2097152 "$MNT/old" "$PATTERN"
	check "$1: freeze: the writer waits" kill -0 $pid
	fsfreeze -u "$MNT"
	took_ms ms wait $pid
	# Twice $alone ms, in s.
	check "$1: freeze: and goes on" in_time "$ms" $((alone / 500))
	check "$1: freeze: nothing is lost" cmp "$MNT/file" "$PATTERN"
}

test_remount() {
	local fd
	exec {fd}> "$MNT/open"
	check "$1: remount: not while a file is open for writing" eval "! mount -o remount,ro $MNT 2> /dev/null"
	exec {fd}>&-
	dirty "$MNT/file" $DIRTY_MIB
	check "$1: remount: read-only with dirty data" mount -o remount,ro "$MNT"
	echo 3 > $VM/drop_caches
	check "$1: remount: which is written" cmp -n $((DIRTY_MIB << 20)) "$MNT/file" "$PATTERN"
	check "$1: remount: nothing can be changed" eval "! dirty $MNT/file 1 2> /dev/null"
	check "$1: remount: until it is writable again" eval "mount -o remount,rw $MNT && dirty $MNT/file 1"
}

# suspended(cmd...) - of the whole stack, under an fsync; EXIT, MS are the fsync's
suspended() {
	local begin end pid
	dirty "$MNT/file" $DIRTY_MIB
	"$@" "$STACK_DM" || return
	now_us begin
	sync "$MNT/file" &
	pid=$!
	still $SUSPEND_S || return
	dmsetup resume --noudevsync "$STACK_DM"
	wait $pid || return
	now_us end
	MS=$(((end - begin) / 1000))
}

test_suspend() {
	local options=
	umount_fs "$MNT"
	[ "$FS" = "$1" ] || options=${1#* }
	stack_create linear "$DISK_DEV" || die "no dm-linear"
	mkfs_mount "$FS" "$STACK_DEV" "$MNT" "$options" || die "cannot mount $FS on dm-linear"
	check "$1: suspend: freezes the file system" suspended dmsetup suspend --noudevsync
	check "$1: suspend: fsync takes that long" in_time "$MS" $((SUSPEND_S + 1))
	check "$1: suspend: without freezing it" suspended dmsetup suspend --nolockfs --noudevsync
	check "$1: suspend: fsync takes that long, too" in_time "$MS" $((SUSPEND_S + 1))
}

RESULTS=([stall]=9 [kill]=4 [memory]=5 [freeze]=7 [remount]=6 [suspend]=5)
wb_begin
need_wbdisk
cgroups_check
OPT[disk]=sata OPT[stack]=linear OPT[dir]=
stack_check
faults_pattern $MEMORY_MIB
EXCESS=0
faults_run
metric faults_excess_ms $EXCESS
check_dmesg
ktap_finished
