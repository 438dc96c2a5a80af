#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A light writer beside a heavy one on a stick: how long does it sleep for what the
# other one has dirtied?
#	device	it writes to another disk, both without a cgroup
#	apart	to another disk, each in a cgroup of its own
#	cgroup	to the stick, each in a cgroup of its own
#	none	to the stick, both without a cgroup: they share its pace, but with a time
#		limit one that dirties less than its share goes on
#	short	the same with a time limit so short that the least limit in pages stands for
#		longer, a MiB at a time
#	many	many light writers, who together dirty more than the stick writes
# Each without a time limit and with one of all disks, where there is such a limit; of
# device and apart the stick stands still, of the others it is slow, and then stands
# still, where who writes to it can but wait, sooner or later, but no longer than it does.
# The part many is only with a limit, and the stick of short only slow.

# "$!" is no array, whatever was sourced before.
# shellcheck disable=SC2128

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

readonly LIMIT_MS=3000 SHORT_MS=300 HEAVY_S=15 STALL_MS=40000
# 1 MiB/s for half a minute, and what it has to wait.
readonly LIGHT_KIB=512 LIGHT_ROUNDS=60 LIGHT_PAUSE_S=.5
# Its first MiB is that of a new task, which has nothing left of its share.
readonly SHORT_KIB=1024 SHORT_ROUNDS=30 SHORT_PAUSE_S=1 SHORT_LIGHT_MS=1000
# A hundredth of the time; of two tasks that share a pace without a time limit, each
# moment in which the disk cleans nothing is for both, a tenth.
readonly LIGHT_MS=300 SHARED_MS=3000
# A little more than the stick's 10 MB/s; the limit is 12 MiB, its least. From a
# quarter above it on writers wait until something is clean.
readonly MANY=40 MANY_KIB=281 MANY_ROUNDS=60 MANY_MS=1000 MANY_LIMIT=$((12 * 1048576))

about title "how long a light writer sleeps for what a heavy one on a stick has dirtied"
about replays "none: who sleeps for whose dirty data"
about wall 75
about programs awk dd
about kernel CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK FTRACE
about series
case_parts device apart cgroup none short many
axis fs xfs 'xfs|ext4' "file system of the disks"
measures slept_X_W_L ms lower \
	"how long it slept while it wrote 30 MiB, half a minute's work; X: part, W: the stick is slow or still, L: time limit on or off"
measures dirty_X_W_L bytes - "dirty and under writeback at the end"
measures dirty_many bytes lower "most that 40 light writers to the stick have dirty with a time limit"
measures dirty_many_mean bytes lower "the same, mean"
case_parse "$@"
OPT[disk]=fifo OPT[disk-set]="" OPT[dir]=""

# light(directory, KiB, rounds, pause in s, block) - by one task: what one that has
# just begun may do says little
light() {
	local i
	for ((i = 0; i < $3; i++)); do
		head -c "${2}k" /dev/zero
		sleep "$4"
	done | "$LIGHT" bs="$5" iflag=fullblock of="$1/light" status=none
	[ "$(stat -c %s "$1/light")" -eq $(($3 * $2 * 1024)) ]
}

# in_group(name, cmd...) - in that cgroup, if there is a name; in a subshell
in_group() {
	[ -z "$1" ] || echo "$BASHPID" > "$CGROUPS/wb-$1/cgroup.procs" || return
	"${@:2}"
}

# beside(part, slow|still, label, where, heavy's cgroup, light's cgroup) - SLEPT: ms
beside() {
	local name=$1$2$3 limit=$LIMIT_MS
	local light=("$LIGHT_KIB" "$LIGHT_ROUNDS" "$LIGHT_PAUSE_S" 64k)
	if [ "$1" = short ]; then
		limit=$SHORT_MS
		light=("$SHORT_KIB" "$SHORT_ROUNDS" "$SHORT_PAUSE_S" 1M)
	fi
	disk_beside "${OPT[fs]}" "$name" usb-stick
	disk_beside "${OPT[fs]}" "other$name" fifo link_mbps=200
	DISK_NAME=wbd-$name
	if [ "$3" = on ]; then
		bdi_set max_drain_ms "$limit" || die "cannot set max_drain_ms"
		bdi_set max_drain_ms "$limit" "wbd-other$name" || die "cannot set max_drain_ms"
	fi
	[ -z "$5" ] || cgroup_create "$5"
	[ -z "$6" ] || cgroup_create "$6"
	in_group "$5" exec dd if=/dev/zero of="/mnt/$name/heavy" bs=1M count=99999 status=none &
	WRITER=$!
	# Whether one of its writes meets a moment of pressure is chance: each seed another.
	sleep "$HEAVY_S.$((OPT[seed] * 137 % 900 + 100))"
	[ "$2" = slow ] || wbdisk_set "$name" stall_ms "$STALL_MS"
	throttle_trace_clear
	kill -0 "$WRITER" || die "the heavy writer is gone"
	(in_group "$6" light "/mnt/$4$name" "${light[@]}") || die "the light writer failed"
	read -r SLEPT _ < <(throttle_trace_sum "$WB_OUT/throttle_$name.txt")
	metric "slept_$1_$2_$3" "$SLEPT"
	metric "dirty_$1_$2_$3" "$(dirty_bytes)"
	wbdisk_set "$name" stall_ms 0
	stop_tasks "$WRITER"
	wbdisk_set "$name" link_mbps 1000
	disk_drop "$name"
	disk_drop "other$name"
}

# both(part, slow|still, most ms, and with a limit, where, [heavy's cgroup, light's]) -
# without a limit, and with one; "" for what it may sleep: only measured
both() {
	beside "$1" "$2" off "$5" "${6:+$6$2off}" "${7:+$7$2off}"
	[ -z "$3" ] || check "$1: $2: it sleeps for $3 ms at most" [ "$SLEPT" -le "$3" ]
	if [ -n "$HAS_LIMIT" ]; then
		beside "$1" "$2" on "$5" "${6:+$6$2on}" "${7:+$7$2on}"
		check "$1: $2: with a time limit for $4 ms at most" [ "$SLEPT" -le "$4" ]
	else
		skip_test "$1: $2: with a time limit for $4 ms at most" "no max_drain_ms"
	fi
}

test_device() {
	both device still "$LIGHT_MS" "$LIGHT_MS" other
}

test_apart() {
	both apart still "$LIGHT_MS" "$LIGHT_MS" other far near
}

test_cgroup() {
	both cgroup slow "$LIGHT_MS" "$LIGHT_MS" "" heavy light
	both cgroup still "$STALL_MS" "$STALL_MS" "" heavy light
}

test_none() {
	both none slow "$SHARED_MS" "$LIGHT_MS" ""
	both none still "" "$STALL_MS" ""
}

test_short() {
	both short slow "$SHARED_MS" "$SHORT_LIGHT_MS" ""
}

# many_writer(number) - one task, which begins at a time of its own
many_writer() {
	local i
	sleep ".$((($1 * 7919 + OPT[seed] * 137) % 900 + 100))"
	for ((i = 0; i < MANY_ROUNDS; i++)); do
		head -c "${MANY_KIB}k" /dev/zero
		sleep 1
	done | dd of="/mnt/many/file$1" bs=64k iflag=fullblock status=none
}

test_many() {
	local i dirty peak=0 sum=0 looks=0 writers=()
	if [ -z "$HAS_LIMIT" ]; then
		skip_test "many: dirty memory stays below twice the limit" "no max_drain_ms"
		skip_test "many: it is near the limit" "no max_drain_ms"
		return
	fi
	disk_beside "${OPT[fs]}" many usb-stick
	DISK_NAME=wbd-many
	bdi_set max_drain_ms "$MANY_MS" || die "cannot set max_drain_ms"
	for ((i = 0; i < MANY; i++)); do
		many_writer "$i" &
		writers+=("$!")
	done
	while kill -0 "${writers[@]}" 2> /dev/null; do
		dirty=$(dirty_bytes)
		((dirty <= peak)) || peak=$dirty
		sum=$((sum + dirty)) looks=$((looks + 1))
		sleep .1
	done
	wait "${writers[@]}" || die "a writer failed"
	metric dirty_many "$peak"
	metric dirty_many_mean $((sum / looks))
	# What each is in the middle of comes to it.
	check "many: dirty memory stays below twice the limit" \
		[ "$peak" -le $((2 * MANY_LIMIT + MANY * 65536)) ]
	check "many: it is near the limit" [ $((sum / looks)) -le $((MANY_LIMIT * 5 / 4)) ]
	wbdisk_set many link_mbps 1000
	disk_drop many
}

declare -A RESULTS=([device]=2 [cgroup]=4 [apart]=2 [none]=3 [short]=2 [many]=2)
wb_begin
need_wbdisk
cgroups_check
# dd under a name of its own, for the trace.
LIGHT=$(mktemp -u /tmp/light.XXXXXX)
on_exit rm -f "$LIGHT"
cp "$(command -v dd)" "$LIGHT" || die "cannot copy dd"
throttle_trace_start 512 "${LIGHT##*/}" || skip_all "needs the tracepoint writeback:balance_dirty_pages"
wbdisk_create probe fifo || die "cannot make the disk probe"
HAS_LIMIT=
[ ! -e "$(bdi_dir wbd-probe)/max_drain_ms" ] || HAS_LIMIT=1
wbdisk_destroy probe
set_limits ratio 10 20
run_parts
