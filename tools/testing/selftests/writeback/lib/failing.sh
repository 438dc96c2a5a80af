#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the cases about faults share: a file system on a disk that can fail, fsync
# of one open file, and whether anything is left in flight.  After cgroup.sh.

# Each as "file system, mount options".
# shellcheck disable=SC2034 # for the cases
readonly FAULTS_FS=("ext4 delalloc" "ext4 nodelalloc,dioread_nolock" xfs)
readonly FAULTS_MIB=512
readonly DEBUG_BLOCK=/sys/kernel/debug/block
PATTERN=	# what the cases write
declare -A INJECTED RESULTS

# faults_pattern(MiB) - PATTERN is a file of that size, no two of its lines alike
faults_pattern() {
	PATTERN=$WB_OUT/pattern
	seq 1000000 9999999 | head -c "$1M" > "$PATTERN"
	on_exit rm -f "$PATTERN"
}

# faults_begin(fs and options, [attribute=value...]) - empty, mounted on MNT
faults_begin() {
	local fs=${1%% *} options=
	[ "$fs" = "$1" ] || options=${1#* }
	disk_raw sata-ssd capacity_mib=$FAULTS_MIB "${@:2}"
	mkfs_mount "$fs" "$DISK_DEV" "$MNT" "$options" || die "cannot mount $1"
}

# faults_clear() - the disk works again
faults_clear() {
	wbdisk_set test fail_range ""
	wbdisk_set test fail_nth ""
	wbdisk_set test stall_ms 0
}

# faults_end(kind) - the disk goes; counts what was injected
faults_end() {
	INJECTED[$1]=$((${INJECTED[$1]:-0} + $(wbdisk_stat test errors_injected)))
	disk_teardown
}

# fd_sync(fd) - fsync of this open file, not of another one of the same name; prints
# "ok" or the error
fd_sync() {
	local why
	why=$(dd if=/dev/null conv=fsync status=none 2>&1 >&"$1") && echo ok || echo "${why##*: }"
}

# settled() - is nothing dirty, in flight or held on the disk, in a minute at most?
settled() {
	local off
	off=$(stat_error_kb)
	loop_until no_charge "$off" && return
	bdi_debug stats | grep -E 'Writeback|Reclaimable|b_' | sed 's/^/# bdi: /'
	sed 's/^/# wbt: /' "$DEBUG_BLOCK/$DISK_NAME/rqos/wbt/inflight"
	note "wbdisk: $(wbdisk_stat test inflight_bytes) bytes in flight"
	return 1
}

# stat_error_kb() - how far the numbers of the bdi may be off: wb_stat_error() of the
# kernel for each of its cgroups; but on a single CPU they are exact, unless tasks are
# preempted between the look at a counter and its lock
stat_error_kb() {
	local cpus log=0 n
	cpus=$(($(sed 's/.*[-,]//' /sys/devices/system/cpu/possible) + 1))
	if [ "$cpus" -eq 1 ] && [[ $(uname -v) != *PREEMPT* ]]; then
		echo 0
		return
	fi
	for ((n = cpus; n > 1; n /= 2)); do
		log=$((log + 1))
	done
	n=$(bdi_debug wb_stats | grep -c '^WbCgIno')
	echo $(((n > 0 ? n : 1) * cpus * 8 * (1 + log) * $(getconf PAGE_SIZE 2> /dev/null || echo 4096) / 1024))
}

# no_charge(kB) - is nothing in flight or held, and less than that dirty?
no_charge() {
	[ "$(wbdisk_stat test inflight_bytes)" = 0 ] && wbt_uncharged "$DISK_NAME" || return
	sync -f "$MNT" 2> /dev/null
	bdi_debug stats | awk -v off="$1" '
		/^Bdi(Writeback|Reclaimable):/ && $2 && $2 >= off { bad = 1 }
		END { exit bad }'
}

# consistent(fs) - after the journal was replayed, as a mount does?
consistent() {
	mount -t "$1" "$DISK_DEV" "$MNT" && umount "$MNT" && fsck_clean "$1" "$DISK_DEV"
}

# faults_run() - the parts that --part names, each on each of FAULTS_FS: one is
# test_PART(fs and options) with RESULTS[PART] results, one of which comes from here
faults_run() {
	local chosen=${OPT[part]} part fs total=1
	# shellcheck disable=SC2153 # of the case
	[ "$chosen" != all ] || chosen=$PARTS
	for part in $chosen; do
		total=$((total + RESULTS[$part] * ${#FAULTS_FS[@]}))
	done
	ktap_set_plan "$total"
	for part in $chosen; do
		for fs in "${FAULTS_FS[@]}"; do
			faults_part "$part" "$fs"
		done
	done
}

faults_part() {
	FS=${2%% *}
	faults_begin "$2" write_cache=1
	"test_$1" "$2"
	faults_clear
	mountpoint -q "$MNT" || mount_fs "$FS" "$DISK_DEV" "$MNT"
	check "$2: $1: nothing is left dirty, in flight or held" settled
	faults_end "$1"
}

# took_ms(var, cmd...) - run it; its exit code
took_ms() {
	local begin end rc
	now_us begin
	"${@:2}"
	rc=$?
	now_us end
	printf -v "$1" '%d' $(((end - begin) / 1000))
	return $rc
}
