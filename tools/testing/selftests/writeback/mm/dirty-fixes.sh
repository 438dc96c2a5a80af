#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Defects of the limits of dirty memory, each shown on a kernel that has it:
#	bytes	max_bytes and min_bytes of a device do not stay the bytes that were
#		asked for, and are refused above the present dirty threshold
#	share	a device with strict_limit that wrote nothing of late has a share
#		of 0 beside a busy one: its writer waits for every few pages; or, beside
#		one that stands still with all its data sent, until it goes on;
#		and min_bytes of one device above the threshold leave no share to others
#	idle	a device that was idle counts as slow if its writer gets to its ceiling
#		before the flusher runs
#	start	background writeback of such a device does not start at its own
#		background threshold
#	trace	balance_dirty_pages shows the global limit for a cgroup's writer
#	zero	with vm.dirty_ratio=0, a write to max_bytes divides by zero
#
# The last one is an Oops where the defect is there, which the kernel may be told
# to survive (--oops=0 leaves it out).  A process of its own writes, to the device
# of a loop disk that stays when the other disks go: what it held is never given
# back.

# "$!" is no array, whatever was sourced before.
# shellcheck disable=SC2128

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

readonly MIB=1048576
readonly BUSY_MBPS=400 SLOW_MBPS=20	# speeds of the disks
readonly CAP=$((32 * MIB))		# max_bytes: more than a second of the slow disk
# A limit may be exceeded by what two samples and the largest folios let through.
readonly CAP_SLACK=1.1
readonly COLD_MIB=24			# written to the cold disk
# What the disk itself needs; the writer leaves more than half of it in memory.
COLD_SECONDS=$(calc "$COLD_MIB * 1.048576 / $SLOW_MBPS")
readonly COLD_SECONDS
# A pause longer than the 3 s of the bandwidth's average.
readonly IDLE_S=20
# Sent to the disk that stands still: more than half of the threshold, so that the
# writer's part of what is left is below the flusher's, but below the freerun ceiling.
readonly SENT_PCT=65 STALL_MS=15000

about title \
	"bytes of a device, strict limits, new cgroups, trace and a division by zero in the limits of dirty memory"
about replays \
	"none: tests fixes; fails on the stock kernel, whose defects it shows (the last one is an Oops)"
about wall 90
about programs awk dd chrt
about kernel BLK_DEV_LOOP CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK FTRACE
about series
about not_fast "where a cgroup's reclaim gives up before any time has passed"
axis oops 1 '0|1' "divide by zero, if the kernel does"
measures max_dirty_X bytes - "peak of dirty + writeback pages, setting X"
measures cold_strict_s s lower "24 MiB to a cold device with strict_limit beside a busy one"
measures cold_stalled_s s lower "the same beside a device that stands still"
measures bandwidth_X kB/s - "estimate of the disk's write bandwidth: busy; after idle time"
measures dirty_above_background bytes lower \
	"left dirty above such a device's background threshold"
measures trace_cgroup_limit bytes - "limit in the trace for a writer in a cgroup"
case_parse "$@"
OPT[disk]=fifo OPT[disk-set]="" OPT[dir]=""

# ---- bytes -----------------------------------------------------------------

# refused(attribute, value) - is it, and does the old value stay?
refused() {
	local before
	before=$(bdi_get "$1")
	if bdi_set "$1" "$2"; then
		note "$1: '$2' was accepted"
	elif [ "$(bdi_get "$1")" != "$before" ]; then
		note "$1: '$2' changed $before to $(bdi_get "$1")"
	else
		return 0
	fi
	return 1
}

refused_all() {
	local value
	for value in -1 18446744073709551616 99999999999999999999 text "" 1.5 "$(($(mem_total) * 2))"; do
		refused "$1" "$value" || return
	done
}

# stays(attribute, bytes) - is it what was asked for?
stays() {
	local now
	now=$(bdi_get "$1")
	[ "$now" = "$2" ] && return
	note "$1 is $now, not $2 (dirty_ratio $(< $VM/dirty_ratio), threshold $(vmstat nr_dirty_threshold) pages)"
	return 1
}

# peak(MiB) - largest amount of dirty memory, in bytes, while dd writes so much
peak() {
	local csv=$WB_OUT/peak_$1_$RANDOM.csv
	declare -A S=()
	drop_file "$MNT/file"
	sampler_start "$csv"
	dd if=/dev/zero of="$MNT/file" bs=1M count="$1" status=none || die "dd failed"
	sampler_stop
	sampler_summary "$csv" S
	PEAK=$((S[dirty] * PAGE))
}

test_bytes() {
	local knob high ratio
	set_limits ratio 10 20
	high=$((AVAIL / 2 / PAGE * PAGE))
	for knob in max_bytes min_bytes; do
		check "$knob: half of dirtyable memory is accepted and shown" \
			eval "bdi_set $knob $high && stays $knob $high"
		check "$knob: bad values are refused, the old one stays" refused_all "$knob"
		bdi_set max_ratio 100
		bdi_set min_ratio 0
	done

	bdi_set max_bytes "$CAP"
	set_limits ratio 20 40
	check "max_bytes stays what it is when dirty_ratio changes" stays max_bytes "$CAP"
	bdi_set max_bytes "$CAP"
	dd if=/dev/zero of=/dev/shm/fill bs=1M count=$((AVAIL / 3 / MIB)) status=none
	check "max_bytes stays what it is when memory is taken" stays max_bytes "$CAP"
	rm /dev/shm/fill

	# In force, too: the same bytes at half and at the present threshold.
	bdi_set strict_limit 1
	for ratio in 20 40; do
		set_limits ratio $((ratio / 2)) "$ratio"
		[ "$ratio" != 20 ] || bdi_set max_bytes "$CAP"
		peak $((3 * CAP / MIB))
		metric "max_dirty_max_bytes_$ratio" "$PEAK"
		check "max_bytes holds with dirty_ratio $ratio" holds "$PEAK <= $CAP * $CAP_SLACK + $SLACK_PAGES * $PAGE"
	done
	bdi_set max_ratio 100
	ratio=$(bdi_get max_ratio)
	check "a ratio replaces the bytes" [ "$ratio" = 100 ]
	bdi_set strict_limit 0
}

# ---- strict limits ---------------------------------------------------------

# cold_write(metric, result) - does a writer to the cold disk get on?
cold_write() {
	local start end
	now_us start
	dd if=/dev/zero of="$MNT/file" bs=64k count=$((COLD_MIB * 16)) status=none
	now_us end
	metric "$1" "$(calc "($end - $start) / 1e6")"
	check "$2" holds "($end - $start) / 1e6 <= $COLD_SECONDS"
}

test_share() {
	local thresh
	disk_beside xfs busy fifo "link_mbps=$BUSY_MBPS"
	set_limits ratio 10 20
	drop_file "$MNT/file"
	bdi_set strict_limit 1
	# Ends by itself: who kills a subshell leaves its dd.
	(while [ ! -e "$WB_OUT/idle" ]; do
		dd if=/dev/zero of=/mnt/busy/file bs=1M count=600 conv=notrunc status=none || break
	done) &
	WRITER=$!
	# Shares are of the last few periods of 3 s.
	sleep 20
	bdi_set max_ratio 1
	thresh=$(bdi_debug stats | awk '$1 == "BdiDirtyThresh:" { print $2 }')
	bdi_set max_ratio 100
	note "threshold of one that writes nothing, with max_ratio 1: $thresh kB"
	check "as many as have a max_ratio of 1 cannot take all" \
		holds "$thresh * 1024 / $PAGE <= $(vmstat nr_dirty_threshold) / 100 / 4 * 1.1"
	cold_write cold_strict_s "a cold device with strict_limit takes data beside a busy one"
	touch "$WB_OUT/idle"
	wait "$WRITER"
	drop_file /mnt/busy/file
	drop_file "$MNT/file"
	beside_stalled
	bdi_set strict_limit 0
	# More than the threshold of a fifth.
	bdi_set min_bytes $((AVAIL / 2 / PAGE * PAGE)) || note "min_bytes above the threshold was refused"
	thresh=$(DISK_NAME=wbd-busy bdi_debug stats | awk '$1 == "BdiDirtyThresh:" { print $2 }')
	note "threshold of the other one: $thresh kB"
	check "min_bytes of a device leave another one a share" \
		holds "$thresh >= $(vmstat nr_dirty_threshold) * $PAGE / 1024 / 16"
	bdi_set min_ratio 0
	disk_drop busy
}

# all_sent() - is nearly nothing dirty, but not yet under writeback?
all_sent() {
	holds "$(vmstat nr_dirty) * 10 < $(vmstat nr_writeback)"
}

beside_stalled() {
	wbdisk_set busy stall_ms "$STALL_MS"
	dd if=/dev/zero of=/mnt/busy/file bs=1M count=$((AVAIL * SENT_PCT / 5 / 100 / MIB)) status=none
	sync /mnt/busy/file &
	WRITER=$!
	loop_until all_sent || die "the disk that stands still was not sent its data"
	cold_write cold_stalled_s "a cold device with strict_limit takes data beside one that stands still"
	wbdisk_set busy stall_ms 0
	wait "$WRITER"
}

test_start() {
	local dirty
	set_limits ratio 10 20
	drop_file "$MNT/file"
	bdi_set strict_limit 1
	bdi_set max_bytes $((2 * CAP))
	# A share to begin with, of a disk that is alone.
	dd if=/dev/zero of="$MNT/file" bs=1M count=$((2 * CAP / MIB)) conv=fsync status=none
	drop_file "$MNT/file"
	# Above the background threshold of half, below the freerun ceiling of 3/4.
	dd if=/dev/zero of="$MNT/file" bs=64k count=$((CAP * 5 / 4 / 65536)) status=none
	sleep 2
	dirty=$(awk '$1 == "Dirty:" { print $2 * 1024 }' /proc/meminfo)
	metric dirty_above_background "$dirty"
	check "background writeback starts at the device's own threshold" \
		holds "$dirty <= $CAP + $SLACK_PAGES * $PAGE"
	bdi_set max_ratio 100
	bdi_set strict_limit 0
}

# ---- idle ------------------------------------------------------------------

# bandwidth() - of the root's writeback; that of the device counts who has dirty inodes
bandwidth() {
	bdi_debug wb_stats | awk '$1 == "WbWriteBandwidth:" { print $2; exit }'
}

test_idle() {
	local busy idle
	set_limits ratio 10 20
	drop_file "$MNT/file"
	bdi_set strict_limit 1
	bdi_set max_bytes "$CAP"
	dd if=/dev/zero of="$MNT/file" bs=1M count=$((6 * SLOW_MBPS)) conv=fsync status=none
	busy=$(bandwidth)
	metric bandwidth_busy "$busy"
	sleep "$IDLE_S"
	# The flusher has to wait for the CPU until the writer pauses.
	chrt -f 1 dd if=/dev/zero of="$MNT/file" bs=64k count=$((CAP * 2 / 65536)) conv=notrunc status=none
	idle=$(bandwidth)
	metric bandwidth_idle "$idle"
	check "a disk that was idle counts as fast as it was" holds "$idle >= $busy / 2"
	bdi_set max_ratio 100
	bdi_set strict_limit 0
}

# ---- cgroups ---------------------------------------------------------------

test_trace() {
	local max=$((192 * MIB)) limit
	set_limits ratio 10 20
	throttle_trace_start "" || { skip_test "the trace shows the cgroup's limit" "no tracepoint"; return; }
	cgroup_create trace "$max"
	throttle_trace_clear
	# What the kernel knows of a cgroup's dirty memory may be two seconds old, and whoever
	# fills the cgroup before that is killed: less than it holds, in two parts.
	cgroup_run trace dd if=/dev/zero of="$MNT/cgroup" bs=1M count=100 status=none
	sleep 5
	cgroup_run trace dd if=/dev/zero of="$MNT/cgroup" bs=1M count=70 seek=100 \
		conv=notrunc status=none
	throttle_trace_sum "$WB_OUT/throttle_cgroup.txt" "$CGROUPS/wb-trace" > /dev/null
	limit=$(awk '
		match($0, / limit=[0-9]+/) {
			v = substr($0, RSTART + 7, RLENGTH - 7)
			if (v > max) max = v
		}
		END { print max + 0 }' "$WB_OUT/throttle_cgroup.txt")
	metric trace_cgroup_limit "$((limit * PAGE))"
	check "the trace shows the cgroup's limit" holds "$limit > 0 && $limit * $PAGE <= $max"
}

# ---- division by zero ------------------------------------------------------

test_zero() {
	local panic=/proc/sys/kernel/panic_on_oops bdi=/sys/block/loop7/bdi status
	local name="max_bytes with vm.dirty_ratio=0 does not divide by zero"
	[ "${OPT[oops]}" = 1 ] || { skip_test "$name" "--oops=0"; return; }
	[ -e "$bdi/max_bytes" ] || bdi=$(find /sys/class/bdi/ -name '7:*' | head -n 1)
	[ -e "$bdi/max_bytes" ] || { skip_test "$name" "no loop device"; return; }
	set_value "$panic" 0
	set_dirty background_ratio 0
	set_dirty ratio 0
	for knob in min_bytes max_bytes; do
		# Killed by the Oops, the shell returns 137.
		bash -c "echo 1048576 > $bdi/$knob" 2> /dev/null
		status=$?
		if ((status > 128)); then
			note "the writer of $knob was killed: status $status"
			check "$name" false
			return
		fi
	done
	check "$name" true
	echo 0 > "$bdi/min_ratio"
	echo 100 > "$bdi/max_ratio"
	set_limits ratio 10 20
}

wb_begin
[ -x "$WB_DIR/vmstat_sampler" ] || skip_all "needs vmstat_sampler: make"
need_wbdisk
cgroups_check
disk_setup xfs "" "link_mbps=$SLOW_MBPS"
dirtyable AVAIL
ktap_set_plan 18
# Only the limits write data back: it is too young for the periodic flusher.
set_dirty expire_centisecs 360000
test_bytes
test_start
test_share
test_idle
test_trace
disk_teardown
test_zero
check_dmesg
ktap_finished
