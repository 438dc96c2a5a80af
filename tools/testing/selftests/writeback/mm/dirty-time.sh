#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The time limit of dirty data, max_drain_ms of a device: at most what the device
# drains in so many milliseconds.
#	knobs	bad values are refused, the old one stays
#	off	without a limit the thresholds are the same, to the page
#	stick	2 GiB to a stick of 10 MB/s: how long does sync take at the end, how
#		long is the writer held at a time?
#	step	a disk that becomes twenty times slower in mid-write
#	lower	a limit set far below what is dirty
#	crowd	more writers at once than the device has room for
#	change	a cache that ends, a slower medium in the same drive, ten idle minutes before
#		a slower rate, files that are removed before they are written: how long does
#		sync take, 2 s after it?
#	beside	a fast disk while the stick is written
#	quiet	a minute of small fsyncs, then a burst; bursts with pauses; a little after
#		a burst that nobody synced and a pause
#	slow	a disk that becomes slow under a light writer, that comes to less than half
#		of the limit; a limit that is set lower; a disk that becomes slow between bursts
#	extents	in how many pieces is a file, and are files that are written at once, on
#		both file systems?
#	groups	how long a light cgroup sleeps on account of a noisy one; does the limit of
#		a cgroup stay a hard one beside a time limit, which is none?
# Where there is no such limit, stick, beside, extents and groups measure without it,
# and what they would check is skipped.  With --by estimate there is one that any kernel
# has: what a daemon can do that sets max_bytes by the bandwidth that the kernel estimates.

# "$!" is no array, whatever was sourced before.
# shellcheck disable=SC2128

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

readonly MIB=1048576

readonly STICK_MS=3000 STICK_MIB=2048 STICK_SAMPLE_MS=200
# The estimate is not exact, and metadata is written, too: a fifth.
readonly SYNC_S=3.6
# One sleep is at most 200 ms, and a tick or two until the task runs.
readonly BLOCK_MS=250

readonly STEP_FROM=200 STEP_TO=10	# MB/s
# What is dirty at the step must go at STEP_TO: of 300 ms, 60 MB, that takes 5 s without
# a writer until FLOOR is left, and up to half as long again beside one; of 3 s it would
# take a minute however the kernel behaves.
readonly STEP_MS=300 STEP_SHARE=1.5 STEP_BLOCK_MS=500
readonly FLOOR=$((12 * MIB))		# DRAIN_FLOOR of mm/page-writeback.c

# Of 250 MiB dirty and 20 MB/s, 12 MiB allowed: the writer has at most a quarter of the
# rate, and less while dirty_ratelimit comes down with it, so that more than half of
# 160 MB go in 8 s.  A writer that is stopped waits for 11 s.
readonly LOWER_MBPS=20 LOWER_MIB=250 LOWER_MS=100 LOWER_S=8

# A task that is new dirties 128 KiB before it looks at the limit, as one that writes by
# large folios does each time: every two pauses that is 320 kB/s, and of so many fifteen
# times what the device writes.  They may have the limit twice, and that much.
readonly CROWD=96 CROWD_MBPS=2 CROWD_S=30 CROWD_KIB=120
# Half a minute each, DRAIN_STILL, and one that waited before.
readonly CROWD_STILL_S=70
readonly CROWD_MAX=$((2 * FLOOR + CROWD * CROWD_KIB * 1024))

readonly CHANGE_MS=1000 CHANGE_AFTER_S=2
readonly CLIFF_FROM=500 CLIFF_TO=60 CLIFF_MIB=1024	# MB/s, MiB
readonly CARD_FROM=90 CARD_TO=10 CARD_S=5 IDLE_S=600
# Each less than four times the one before, above half of a limit that grows so.
readonly REMOVED_MIB="14 48 160 320"

readonly FAST_MBPS=200 FAST_MIB=1024 FAST_MS=1000 FAST_SHARE=0.95 FAST_ALONE=0.99
readonly QUIET_SYNCS=120 QUIET_S=.5 BURST_MIB=512 BURST_SHARE=0.97
# Bursts above a limit of 300 ms, that end while their writer is throttled.
readonly PAUSE_MIB=100 PAUSE_MS=300 PAUSE_S=15 PAUSE_BURSTS=3
# More than half of a limit of 60 MB, which stays dirty, a pause, a little more.
readonly UNSYNCED_MBPS=20 UNSYNCED_MIB=45 UNSYNCED_S=10 LITTLE_MIB=8
# Bursts above half of a limit of 200 MB, each gone, but for that half, before the next.
readonly BURSTS_FROM=200 BURSTS_TO=10 BURSTS_MIB=150 BURSTS_S=20 BURSTS=4
# A writer of 4 MB/s has 120 MB dirty, what it writes in the 30 s of dirty_expire_centisecs.
readonly SLOW_FROM=100 SLOW_TO=5 SLOW_MIB=600 SLOW_S=75 SLOW_KIB=400
# A limit of 60 MB: a file is written in many parts.  Of several files at once none
# can have more than its share of the limit in a part, but should have as much as
# the flusher's least chunk (MIN_WRITEBACK_PAGES of fs/fs-writeback.c).  One file alone
# has 1 or 2 pieces of at most 128 MiB in ext4, as it meets the borders of block groups:
# 3 more are chance; one for each CHUNK_MIB would be 48.
readonly EXTENTS_FILES=4 EXTENTS_MIB=192 EXTENTS_MS=300 EXTENTS_MORE=3 CHUNK_MIB=4
# More than twice FLOOR, written in half a second.
readonly IDLE_MBPS=100 IDLE_MS=100 IDLE_CGROUPS=48 IDLE_MIB=64 IDLE_MAX_S=5
readonly GROUPS_MBPS=20 GROUPS_MS=1000 GROUPS_LIMIT=$((128 * MIB)) LIGHT_ROUNDS=60 LIGHT_MS=300
# Whoever exceeded a limit looks again after 8 pages (32 KiB, balance_dirty_pages_ratelimited()).
readonly POLL_PAGES=16

# A fifth of what the cgroup may have is its own limit, above twice FLOOR, where both
# limits leave nothing.  It may be exceeded while the cgroup's counters are a flush old,
# but not by more and more.
readonly HARD_MAX=$((FLOOR * 11)) HARD_SLACK=1.02
readonly MANY_S=40 MANY_SHARE=1.25
readonly HARD_STALL_MS=300000 HARD_FIRST_S=20 HARD_S=190

about title \
	"time limit of dirty data: thresholds, sync of a stick, a step in speed, two disks, quiet times, extents"
about replays "none: tests max_drain_ms; without it, it measures what it can"
about wall 160
about programs awk dd filefrag losetup paste timeout
about kernel CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK FTRACE
about series
case_parts knobs off stick step lower crowd change beside quiet slow extents groups
axis fs xfs 'xfs|ext4' "file system of the disk"
axis mib "$STICK_MIB" '10..99999 MiB' "written to the stick"
axis by age 'age|estimate' "the limit: max_drain_ms, or max_bytes by the estimated bandwidth"
measures stick_sync_s_L s lower "sync after the writer to a stick ended; L: time limit on or off"
measures stick_write_s_L s - "that writer's own time"
measures stick_mbps_L MB/s higher "the file, sync included"
measures stick_dirty_L bytes - "dirty and under writeback at the writer's end"
measures 'stick_block_ms_L, step_block_ms, lower_block_ms' ms lower \
	"longest time that a writer was held in one go"
measures step_s s lower "until dirty memory is back below the limit of a disk that became slow"
measures 'step_dirty_before, step_dirty_after' bytes - "most dirty memory from that step on, and in the end"
measures 'lower_dirty_before, lower_dirty_after' bytes - \
	"dirty memory when a limit far below it is set, and 8 s later"
measures crowd_max_dirty bytes lower "most dirty memory while so many write"
measures change_sync_s_X s lower \
	"sync, 2 s after a cache ended, another medium came, the disk was idle and slower then, or files were removed"
measures lower_written bytes - "what a writer wrote in these 8 s"
measures 'fast_solo_mbps_L, fast_beside_mbps_L' MB/s higher \
	"a fast disk alone, and while a stick is written"
measures 'burst_fresh_s, burst_quiet_s, burst_unlimited_s' s lower \
	"writing a burst with a fresh estimate, after that minute, without limit"
measures extents_F_N_L count lower \
	"in how many pieces N files are that were written at once, by file system"
measures light_slept_ms_L ms lower \
	"how long a light cgroup slept beside a noisy one, from the trace"
measures light_polls_L count lower "how often that one looked at the limit"
measures 'light_global_ms_L, light_cgroup_ms_L, light_device_ms_L' ms lower \
	"the same by cause, from memory.stat"
measures groups_max_dirty_L bytes - "peak of dirty + writeback pages of both"
case_parse "$@"
OPT[disk]=fifo OPT[disk-set]="" OPT[dir]=""

# ---- helpers ---------------------------------------------------------------

# other_disk(name, profile, [attribute=value...]) - the disk from here on
other_disk() {
	disk_beside "${OPT[fs]}" "$@"
	DISK_NAME=wbd-$1 MNT=/mnt/$1
	limit_disk "$DISK_NAME"
}

# has_limit() - does the kernel know of such a limit?
has_limit() {
	[ "${OPT[by]}" = estimate ] || [ -d "$TRACE_INSTANCE/events/writeback/bdi_drain" ]
}

# limit(ms) - of the modelled disks, those to come included; 1 if there is no such limit
LIMIT_MS=0 ESTIMATOR=
limit() {
	local dir
	has_limit || return
	LIMIT_MS=$1
	[ -z "$ESTIMATOR" ] || stop_tasks "$ESTIMATOR"
	ESTIMATOR=
	for dir in /sys/block/wbd-* /sys/block/loop*; do
		[ ! -d "$dir/bdi" ] || limit_disk "${dir##*/}"
	done
	if [ "${OPT[by]}" = estimate ] && [ "$LIMIT_MS" -gt 0 ]; then
		bdi_debug stats > /dev/null 2>&1	# mounts debugfs
		[ -d /sys/kernel/debug/bdi ] || die "needs debugfs for the estimate"
		estimator &
		ESTIMATOR=$!
	fi
}

limit_disk() {
	has_limit || return 0
	if [ "${OPT[by]}" = estimate ]; then
		if ! bdi_set max_ratio 100 "$1" || ! bdi_set strict_limit "$((LIMIT_MS > 0))" "$1"; then
			die "cannot set strict_limit of $1"
		fi
	else
		bdi_set max_drain_ms "$LIMIT_MS" "$1" || die "cannot set max_drain_ms of $1"
	fi
}

# estimator() - what a daemon could do, five times a second: max_bytes of each disk by
#	the bandwidth that the kernel estimates, never below that of max_drain_ms
estimator() {
	local dir size dev key kbps bytes
	while sleep .2; do
		for dir in /sys/block/wbd-* /sys/block/loop*; do
			{ read -r size < "$dir/size" && read -r dev < "$dir/dev"; } 2> /dev/null || continue
			((size > 0)) || continue
			key=
			while read -r key kbps _; do
				[ "$key" != BdiWriteBandwidth: ] || break
			done 2> /dev/null < "/sys/kernel/debug/bdi/$dev/stats"
			[ "$key" = BdiWriteBandwidth: ] || continue
			bytes=$((kbps * 1024 * LIMIT_MS / 1000))
			echo "$((bytes > FLOOR ? bytes : FLOOR))" 2> /dev/null > "$dir/bdi/max_bytes"
		done
	done
}

# only_age(part) - is it max_drain_ms?  Else the part's results are skipped.
only_age() {
	local i
	[ "${OPT[by]}" = estimate ] || return 0
	for ((i = 1; i <= RESULTS[$1]; i++)); do
		skip_test "$1: result $i" "not with --by estimate"
	done
	return 1
}

# limited(description, cmd...) - a result that needs the limit
limited() {
	if has_limit; then
		check "$@"
	else
		skip_test "$1" "no max_drain_ms"
	fi
}

# write_file(MiB, file) - seconds it took are in TOOK, with DD_ARGS
DD_ARGS=()
write_file() {
	local start end
	now_us start
	dd if=/dev/zero of="$2" bs=1M count="$1" status=none "${DD_ARGS[@]}" || die "dd to $2 failed"
	now_us end
	TOOK=$(calc "($end - $start) / 1e6")
}

# sync_seconds() - TOOK
sync_seconds() {
	local start end
	now_us start
	sync -f "$MNT"
	now_us end
	TOOK=$(calc "($end - $start) / 1e6")
}

# drained() - bytes that the limit comes to at present
drained() {
	if [ "${OPT[by]}" = estimate ]; then
		bdi_get max_bytes
	else
		bdi_get max_drain_bytes
	fi
}

# ---- knobs, off ------------------------------------------------------------

test_knobs() {
	local knob
	only_age knobs || return 0
	other_disk knobs fifo link_mbps=$FAST_MBPS
	knob=$(bdi_dir)/max_drain_ms
	limited "it is off at first, and comes to no limit" comes_to 0 0
	limited "it takes a number" takes "$knob" 1500
	limited "it refuses bad values and keeps the old one" refuses "$knob"
	limited "what it comes to can be read" comes_to 1500 "$FLOOR"
	limited "but not written" eval "! bdi_set max_drain_bytes 0"
	limited "it can be switched off" takes "$knob" 0
	limited "bytes and ratio stay with a time limit" keeps_others
	disk_drop knobs
}

comes_to() {
	[ "$(bdi_get max_drain_ms) $(drained)" = "$1 $2" ]
}

# takes(file, value) - and is it shown?
takes() {
	set_value "$1" "$2" && [ "$(< "$1")" = "$2" ] && return
	note "$1: '$2' is '$(< "$1")'"
	return 1
}

refuses() {
	local value
	for value in -1 2147483648 4294967297 99999999999999999999 default text 1.5 0x; do
		if { echo "$value" > "$1"; } 2> /dev/null; then
			note "$1: '$value' was accepted"
			return 1
		fi
		[ "$(< "$1")" = 1500 ] && continue
		note "$1: '$value' changed it to $(< "$1")"
		return 1
	done
}

keeps_others() {
	set_limits bytes $((64 * MIB)) $((128 * MIB))
	limit 1000
	[ "$(< $VM/dirty_bytes) $(< $VM/dirty_background_bytes)" = "$((128 * MIB)) $((64 * MIB))" ] || return
	set_limits ratio 10 20
	[ "$(bdi_get max_drain_ms)" = 1000 ] && limit 0
}

# thresholds() - all that the kernel shows of them, from one state of memory
thresholds() {
	echo "$(vmstat nr_dirty_threshold) $(vmstat nr_dirty_background_threshold)" \
	     "$(bdi_debug stats | awk '$1 == "BdiDirtyThresh:" || $1 == "DirtyThresh:" { print $2 }' | paste -sd ' ')"
}

test_off() {
	local off on again i same=1
	only_age off || return 0
	other_disk off fifo link_mbps=$FAST_MBPS
	# In bytes: a ratio follows free memory, from one line to the next.
	set_limits bytes $((64 * MIB)) $((128 * MIB))
	write_file 64 "$MNT/file"
	sync
	limit 0
	off=$(thresholds)
	for i in 100 3000; do
		limit "$i"
		on=$(thresholds)
		limit 0
		again=$(thresholds)
		note "thresholds without '$off', with $i ms '$on', without '$again'"
		[ "$off" = "$on" ] && [ "$off" = "$again" ] || same=0
	done
	limited "thresholds are the same with and without a limit" [ "$same" = 1 ]
	set_limits ratio 10 20
	disk_drop off
}

# ---- stick -----------------------------------------------------------------

# stick(label) - write to the stick, sync
stick() {
	local block dirty
	throttle_trace_clear
	mark sampler "$WB_OUT/stick_$1.marks"
	sampler_start "$WB_OUT/dirty_stick_$1.csv" $STICK_SAMPLE_MS
	write_file "${OPT[mib]}" "$MNT/$1"
	dirty=$(dirty_bytes)
	throttle_trace_sum "$WB_OUT/throttle_stick_$1.txt" > /dev/null
	block=$(longest_block "$WB_OUT/throttle_stick_$1.txt")
	WRITE_S=$TOOK
	sync_seconds
	sampler_stop
	metric "stick_dirty_$1" "$dirty"
	metric "stick_write_s_$1" "$WRITE_S"
	metric "stick_sync_s_$1" "$TOOK"
	metric "stick_block_ms_$1" "$block"
	metric "stick_mbps_$1" "$(calc "${OPT[mib]} * $MIB / 1e6 / ($WRITE_S + $TOOK)")"
	SYNC=$TOOK BLOCK=$block
	rm "$MNT/$1"
	sync
}

test_stick() {
	other_disk stick usb-stick
	set_limits ratio 10 20
	limit "$STICK_MS" && stick on
	limited "stick: sync takes no longer than the limit" holds "$SYNC <= $SYNC_S"
	limited "stick: no writer is held longer than one pause" holds "$BLOCK <= $BLOCK_MS"
	limit 0
	disk_drop stick
	other_disk stick usb-stick
	stick off
	disk_drop stick
}

# ---- step ------------------------------------------------------------------

# step_back(most bytes, seconds or nothing) - was it below the limit, and is it again?
#	What is written completes in one go, so that one look may see half of it.
step_back() {
	[ -n "$2" ] && holds "$1 <= $STEP_SHARE * $STEP_FROM * 1e3 * $STEP_MS &&
		$2 <= $STEP_SHARE * ($1 - $FLOOR) / ($STEP_TO * 1e6)"
}

test_step() {
	local csv=$WB_OUT/dirty_step.csv start now before after first most block
	if ! has_limit; then
		skip_test "step: dirty memory is back below the limit" "no max_drain_ms"
		skip_test "step: the writer is not held" "no max_drain_ms"
		return
	fi
	other_disk step fifo link_mbps=$STEP_FROM
	set_limits ratio 10 20
	limit "$STEP_MS"
	throttle_trace_clear
	mark sampler "$WB_OUT/step.marks"
	sampler_start "$csv"
	dd if=/dev/zero of="$MNT/file" bs=1M count=8192 status=none &
	WRITER=$!
	sleep 6
	before=$(dirty_bytes)
	now_us start
	mark slower "$WB_OUT/step.marks"
	wbdisk_set step link_mbps $STEP_TO
	first='' most=$before
	while :; do
		sleep .2
		now_us now
		after=$(dirty_bytes)
		((after <= most)) || most=$after
		if ((after <= FLOOR + SLACK_PAGES * PAGE)); then
			[ -n "$first" ] || first=$(calc "($now - $start) / 1e6")
		fi
		((now - start < 25000000)) || break
	done
	sampler_stop
	throttle_trace_sum "$WB_OUT/throttle_step.txt" > /dev/null
	block=$(longest_block "$WB_OUT/throttle_step.txt")
	stop_tasks "$WRITER"
	wbdisk_set step link_mbps 1000
	metric step_dirty_before "$most"
	metric step_dirty_after "$after"
	metric step_s "${first:-25}"
	metric step_block_ms "$block"
	note "limit $(drained) bytes"
	check "step: dirty memory is back below the limit" step_back "$most" "$first"
	check "step: the writer is not held" holds "$block <= $STEP_BLOCK_MS"
	limit 0
	disk_drop step
}

# ---- lower -----------------------------------------------------------------

test_lower() {
	local before after written block
	if ! has_limit; then
		skip_test "lower: the writer is not held" "no max_drain_ms"
		skip_test "lower: dirty memory comes down" "no max_drain_ms"
		return
	fi
	other_disk lower fifo link_mbps=$LOWER_MBPS
	# Background writeback begins where the limit is: the steepest control line.
	set_limits bytes $((400 * MIB - PAGE)) $((400 * MIB))
	limit "$LOWER_MS"
	write_file 40 "$MNT/first"
	sync
	# The last look at it is 200 ms after that.
	sleep 1
	limit 0
	write_file "$LOWER_MIB" "$MNT/file"
	# What the kernel saw of the limit is old.
	sleep 2
	before=$(dirty_bytes)
	throttle_trace_clear
	limit "$LOWER_MS"
	dd if=/dev/zero of="$MNT/more" bs=64k count=65536 status=none &
	WRITER=$!
	sleep "$LOWER_S"
	after=$(dirty_bytes)
	throttle_trace_sum "$WB_OUT/throttle_lower.txt" > /dev/null
	block=$(longest_block "$WB_OUT/throttle_lower.txt")
	written=$(stat -c %s "$MNT/more")
	stop_tasks "$WRITER"
	metric lower_dirty_before "$before"
	metric lower_dirty_after "$after"
	metric lower_written "$written"
	metric lower_block_ms "$block"
	check "lower: the writer is not held" holds "$written > 0 && $block <= $STEP_BLOCK_MS"
	check "lower: dirty memory comes down" \
		holds "$before > $LOWER_MIB * $MIB * .9 && $before - $after >= $LOWER_MBPS * 1e6 * $LOWER_S / 2"
	limit 0
	wbdisk_set lower link_mbps 1000
	disk_drop lower
	set_limits ratio 10 20
}

# ---- crowd -----------------------------------------------------------------

# crowd_member(number) - until it is stopped
crowd_member() {
	while :; do
		dd if=/dev/zero of="$MNT/file$1" bs="${CROWD_KIB}k" count=1 oflag=append \
			conv=notrunc status=none
	done
}

crowd_bytes() {
	stat -c %s "$MNT"/file* | awk '{ sum += $1 } END { printf "%.0f", sum }'
}

test_crowd() {
	local i dirty peak=0 least before after writers=()
	only_age crowd || return 0
	if ! has_limit; then
		skip_test "crowd: dirty memory stays near twice the limit" "no max_drain_ms"
		skip_test "crowd: each writer gets on" "no max_drain_ms"
		skip_test "crowd: nobody waits for a device that stands still" "no max_drain_ms"
		return
	fi
	other_disk crowd fifo link_mbps=$CROWD_MBPS
	set_limits ratio 20 40
	limit "$STICK_MS"
	for ((i = 0; i < CROWD; i++)); do
		crowd_member "$i" &
		writers+=("$!")
	done
	for ((i = 0; i < CROWD_S; i++)); do
		sleep 1
		dirty=$(dirty_bytes)
		((dirty <= peak)) || peak=$dirty
	done
	least=$(stat -c %s "$MNT"/file* | sort -n | head -1)
	wbdisk_set crowd stall_ms "$HARD_STALL_MS"
	sleep 5
	before=$(crowd_bytes)
	sleep "$CROWD_STILL_S"
	after=$(crowd_bytes)
	wbdisk_set crowd stall_ms 0
	wbdisk_set crowd link_mbps 1000
	stop_tasks "${writers[@]}"
	metric crowd_max_dirty "$peak"
	note "limit $(drained) bytes, $peak dirty, the least of $CROWD files has $least"
	check "crowd: dirty memory stays near twice the limit" [ "$peak" -le "$CROWD_MAX" ]
	check "crowd: each writer gets on" [ "$least" -gt 0 ]
	note "standing still: $((after - before)) bytes in $CROWD_STILL_S s"
	if [ "${OPT[fs]}" = ext4 ]; then
		# In three of six seeds, with a floor of 12 and of 16 MiB.
		skip_test "crowd: nobody waits for a device that stands still" "ext4's journal may"
	else
		check "crowd: nobody waits for a device that stands still" \
			[ "$((after - before))" -ge "$((CROWD * CROWD_KIB * 1024 / 2))" ]
	fi
	limit 0
	disk_drop crowd
}

# ---- a device that is another one -------------------------------------------

# change_writer(file) - has no end
function change_writer() {
	dd if=/dev/zero of="$MNT/$1" bs=1M count=8192 status=none &
	WRITER=$!
}

# changed(name, MB/s, dirty) - the writer stops 2 s later: sync takes no longer than
# 1.5 times the limit, which is never below FLOOR, or than what was dirty before takes.
function changed() {
	local bound
	sleep "$CHANGE_AFTER_S"
	stop_tasks "$WRITER"
	sync_seconds
	bound=$(awk -v rate="$2" -v dirty="$3" -v floor="$FLOOR" -v limit="$CHANGE_MS" -v after="$CHANGE_AFTER_S" 'BEGIN {
		bound = limit / 1e3
		if (bound < floor / rate / 1e6)
			bound = floor / rate / 1e6
		bound *= 1.5
		left = dirty / rate / 1e6 - after
		print (left > bound ? left : bound) }')
	metric "change_sync_s_$1" "$TOOK" s
	limited "change: $1: what is dirty is written in time" holds "$TOOK <= $bound"
}

# A burst rate that ends, as where an SLC cache is full.
function change_cliff() {
	local dirty sectors
	other_disk cliff fifo link_mbps=$CLIFF_TO burst_mbps=$CLIFF_FROM burst_mib=$CLIFF_MIB
	change_writer file
	until read -r _ _ _ _ _ _ sectors _ < "/sys/block/$DISK_NAME/stat" &&
	      ((sectors >= CLIFF_MIB * 2048)); do
		sleep .02
	done
	dirty=$(dirty_bytes)
	note "$dirty bytes are dirty, limit $(! has_limit || drained) bytes"
	changed cliff "$CLIFF_TO" "$dirty"
	wbdisk_set cliff link_mbps 1000
	disk_drop cliff
}

# A loop device that is used again is a drive with another medium.
function change_medium() {
	local loop
	loop=$(losetup -f) || die "no loop device"
	other_disk fast fifo link_mbps=$CARD_FROM
	other_disk slow fifo link_mbps=$CARD_TO
	umount "/mnt/fast" "/mnt/slow"
	DISK_NAME=${loop#/dev/} MNT=/mnt/fast
	losetup --direct-io=on "$loop" /dev/wbd-fast
	limit_disk "$DISK_NAME"
	mount "$loop" "$MNT"
	change_writer file
	sleep "$CARD_S"
	stop_tasks "$WRITER"
	sync_seconds
	note "limit of the first medium $(! has_limit || drained) bytes"
	umount "$MNT"
	losetup -d "$loop"
	losetup --direct-io=on "$loop" /dev/wbd-slow
	mount "$loop" "$MNT"
	change_writer file
	changed medium "$CARD_TO" 0
	umount "$MNT"
	losetup -d "$loop"
	! has_limit || bdi_set max_drain_ms 0
	wbdisk_destroy fast
	wbdisk_destroy slow
}

function change_idle() {
	other_disk idle fifo link_mbps=$CARD_FROM
	change_writer file
	sleep "$CARD_S"
	stop_tasks "$WRITER"
	sync_seconds
	sleep "$IDLE_S"
	wbdisk_set idle link_mbps "$CARD_TO"
	change_writer file
	changed idle "$CARD_TO" 0
	wbdisk_set idle link_mbps 1000
	disk_drop idle
}

# What is removed while it is dirty is clean, but nothing was written.
function change_removed() {
	local mib
	other_disk removed fifo link_mbps=$CARD_TO
	for mib in $REMOVED_MIB; do
		timeout 2 dd if=/dev/zero of="$MNT/temporary" bs=1M count="$mib" status=none
		rm "$MNT/temporary"
	done
	note "limit after files that were removed $(! has_limit || drained) bytes"
	change_writer file
	changed removed "$CARD_TO" 0
	wbdisk_set removed link_mbps 1000
	disk_drop removed
}

function test_change() {
	set_limits ratio 10 20
	limit "$CHANGE_MS" || note "without a time limit"
	change_cliff
	change_medium
	change_idle
	change_removed
	limit 0
}

# ---- a fast disk beside the stick ------------------------------------------

test_beside() {
	local solo label with=0 without
	set_limits ratio 10 20
	for label in on off; do
		if [ "$label" = on ]; then
			limit "$FAST_MS" || continue
		else
			limit 0
		fi
		other_disk stick usb-stick
		other_disk fast fifo link_mbps=$FAST_MBPS
		DD_ARGS=(conv=fsync)
		write_file "$FAST_MIB" "$MNT/solo"
		solo=$TOOK
		drop_file "$MNT/solo"
		dd if=/dev/zero of=/mnt/stick/file bs=1M count=8192 status=none &
		WRITER=$!
		sleep 10
		write_file "$FAST_MIB" "$MNT/beside"
		DD_ARGS=()
		stop_tasks "$WRITER"
		metric "fast_solo_mbps_$label" "$(calc "$FAST_MIB * $MIB / 1e6 / $solo")"
		metric "fast_beside_mbps_$label" "$(calc "$FAST_MIB * $MIB / 1e6 / $TOOK")"
		if [ "$label" = on ]; then
			with=$solo SHARE=$(calc "$solo / $TOOK")
		else
			without=$solo
		fi
		wbdisk_set stick link_mbps 1000
		disk_drop fast
		disk_drop stick
	done
	limited "beside: the fast disk keeps its speed" holds "${SHARE:-0} >= $FAST_SHARE"
	limited "beside: alone it is as fast as without a limit" holds "$without >= $FAST_ALONE * $with"
}

# ---- quiet -----------------------------------------------------------------

test_quiet() {
	local i fresh unlimited slept
	if ! has_limit; then
		skip_test "quiet: the burst is as fast as with a fresh estimate" "no max_drain_ms"
		skip_test "quiet: a burst after a pause is as fast as one before" "no max_drain_ms"
		skip_test "quiet: a little after a pause does not wait" "no max_drain_ms"
		return
	fi
	set_limits ratio 10 20
	other_disk quiet fifo link_mbps=$FAST_MBPS
	write_file "$BURST_MIB" "$MNT/file"
	unlimited=$TOOK
	drop_file "$MNT/file"
	limit "$STICK_MS"
	# A fresh estimate: of the file that was just written.
	write_file "$BURST_MIB" "$MNT/file"
	fresh=$TOOK
	drop_file "$MNT/file"
	for ((i = 0; i < QUIET_SYNCS; i++)); do
		dd if=/dev/zero of="$MNT/log" bs=8k count=1 oflag=append conv=notrunc,fsync status=none
		sleep "$QUIET_S"
	done
	write_file "$BURST_MIB" "$MNT/file"
	metric burst_fresh_s "$fresh"
	metric burst_quiet_s "$TOOK"
	metric burst_unlimited_s "$unlimited"
	check "quiet: the burst is as fast as with a fresh estimate" holds "$fresh / $TOOK >= $BURST_SHARE"
	drop_file "$MNT/file"
	limit "$PAUSE_MS"
	# Throttled, and all written: as fast as the disk, whatever was before.
	DD_ARGS=(conv=fsync)
	write_file "$PAUSE_MIB" "$MNT/burst"
	fresh=$TOOK
	for ((i = 0; i < PAUSE_BURSTS; i++)); do
		sleep "$PAUSE_S"
		write_file "$PAUSE_MIB" "$MNT/burst$i"
		note "burst after a pause: $TOOK s, before $fresh s"
	done
	DD_ARGS=()
	check "quiet: a burst after a pause is as fast as one before" holds "$fresh / $TOOK >= $BURST_SHARE"
	limit 0
	disk_drop quiet
	other_disk unsynced fifo link_mbps=$UNSYNCED_MBPS
	limit "$STICK_MS"
	write_file $((4 * UNSYNCED_MIB)) "$MNT/learn"
	sync
	write_file "$UNSYNCED_MIB" "$MNT/unsynced"
	sleep "$UNSYNCED_S"
	throttle_trace_clear
	write_file "$LITTLE_MIB" "$MNT/little"
	read -r slept _ < <(throttle_trace_sum "$WB_OUT/throttle_quiet.txt")
	note "a little after a pause: slept $slept ms, limit $(drained)"
	check "quiet: a little after a pause does not wait" holds "$slept == 0 && $(drained) >= 2 * $FLOOR"
	limit 0
	disk_drop unsynced
}

# ---- slow ------------------------------------------------------------------

slow_writer() {
	while :; do
		dd if=/dev/zero of="$MNT/slow" bs=${SLOW_KIB}k count=1 oflag=append conv=notrunc status=none
		sleep .1
	done
}

test_slow() {
	local i before
	if ! has_limit; then
		skip_test "slow: what a light writer leaves is written in time" "no max_drain_ms"
		skip_test "slow: a lower limit is found again" "no max_drain_ms"
		skip_test "slow: what a burst leaves is written in time" "no max_drain_ms"
		return
	fi
	set_limits ratio 10 20
	other_disk slow fifo link_mbps=$SLOW_FROM
	limit "$STICK_MS"
	write_file "$SLOW_MIB" "$MNT/file"
	sync
	before=$(drained)
	wbdisk_set slow link_mbps $SLOW_TO
	slow_writer &
	WRITER=$!
	sleep "$SLOW_S"
	stop_tasks "$WRITER"
	note "limit $before bytes, then $(drained), $(dirty_bytes) dirty"
	sync_seconds
	note "sync takes $TOOK s"
	check "slow: what a light writer leaves is written in time" \
		holds "$before >= 2 * $SLOW_TO * 1e6 * $STICK_MS / 1e3 && $TOOK <= 1.5 * $FLOOR / $SLOW_TO / 1e6"
	wbdisk_set slow link_mbps $SLOW_FROM
	write_file "$SLOW_MIB" "$MNT/again"
	sync
	before=$(drained)
	limit $((STICK_MS / 3))
	note "limit $before bytes with $STICK_MS ms, then $(drained) with $((STICK_MS / 3))"
	check "slow: a lower limit is found again" holds "$before > $FLOOR && $(drained) == $FLOOR"
	limit 0
	disk_drop slow
	other_disk bursts fifo link_mbps=$BURSTS_FROM
	limit "$CHANGE_MS"
	write_file $((3 * BURSTS_MIB)) "$MNT/learn"
	sync
	before=$(drained)
	wbdisk_set bursts link_mbps $BURSTS_TO
	for ((i = 0; i < BURSTS; i++)); do
		[ "$i" = 0 ] || sleep "$BURSTS_S"
		write_file "$BURSTS_MIB" "$MNT/burst$i"
	done
	sync_seconds
	note "limit $before bytes, then $(drained); sync takes $TOOK s"
	check "slow: what a burst leaves is written in time" \
		holds "$before >= $BURSTS_MIB * $MIB && $TOOK <= 1.5 * $FLOOR / $BURSTS_TO / 1e6"
	limit 0
	disk_drop bursts
}

# ---- extents ---------------------------------------------------------------

# pieces(fs, label, count) - of so many files written at once; the sum is in PIECES
pieces() {
	local i writers=()
	disk_beside "$1" extents fifo link_mbps=$FAST_MBPS
	limit_disk wbd-extents
	for ((i = 0; i < $3; i++)); do
		dd if=/dev/zero of="/mnt/extents/file$i" bs=64k count=$((EXTENTS_MIB * 16)) status=none &
		writers+=("$!")
	done
	wait "${writers[@]}"
	sync -f /mnt/extents
	PIECES=0
	for ((i = 0; i < $3; i++)); do
		PIECES=$((PIECES + $(extents "/mnt/extents/file$i")))
	done
	metric "extents_${1}_${3}_$2" "$PIECES"
	disk_drop extents
}

test_extents() {
	local fs off
	set_limits ratio 10 20
	for fs in xfs ext4; do
		limit 0
		pieces $fs off $EXTENTS_FILES
		pieces $fs off 1
		off=$PIECES
		! limit $EXTENTS_MS || pieces $fs on 1
		limited "extents: $fs: at most $EXTENTS_MORE more" holds "$PIECES <= $off + $EXTENTS_MORE"
		! has_limit || pieces $fs on $EXTENTS_FILES
		limit 0
		limited "extents: $fs: of several files, not smaller than $CHUNK_MIB MiB" \
			holds "$EXTENTS_FILES * $EXTENTS_MIB / $PIECES >= $CHUNK_MIB"
	done
}

# ---- two cgroups -----------------------------------------------------------

# groups(label) - SLEPT: ms that the light one slept, PEAK: most dirty memory
groups() {
	local csv=$WB_OUT/dirty_groups_$1.csv i key before after
	declare -A S=()
	other_disk "groups$1" fifo link_mbps=$GROUPS_MBPS
	cgroup_create "noisy$1" $((768 * MIB))
	cgroup_create "light$1" $((512 * MIB))
	cgroup_exec "noisy$1" dd if=/dev/zero of="$MNT/noisy" bs=1M count=8192 status=none &
	WRITER=$!
	# Whether one of its writes meets a moment of pressure is chance: each seed another.
	sleep "10.$((OPT[seed] * 137 % 900 + 100))"
	if [ "$1" = on ]; then
		trace_instance "polls$1" 4096 || die "cannot count the polls"
		echo 1 > "$TRACING/instances/polls$1/options/event-fork"
		trace_event "$TRACING/instances/polls$1" writeback/bdi_drain || die "no event of them"
	fi
	throttle_trace_clear
	sampler_start "$csv"
	cgroup_run "light$1" light "$1"
	sampler_stop
	polls_stop "$1"
	read -r SLEPT _ < <(throttle_trace_sum "$WB_OUT/throttle_groups_$1.txt" "$CGROUPS/wb-light$1")
	stop_tasks "$WRITER"
	sampler_summary "$csv" S
	PEAK=$((S[dirty] * PAGE))
	metric "light_slept_ms_$1" "$SLEPT"
	[ -z "$POLLS" ] || metric "light_polls_$1" "$POLLS"
	metric "groups_max_dirty_$1" "$PEAK"
	for key in global cgroup device; do
		after=$(cgroup_stat "light$1" "dirty_throttled_${key}_usec")
		[ -z "$after" ] || metric "light_${key}_ms_$1" "$(calc "$after / 1e3")"
	done
	wbdisk_set "groups$1" link_mbps 1000
	disk_drop "groups$1"
}

# polls_start(label) / polls_stop(label) - POLLS: how often this process and what it
#	starts looked at the limit, empty where there is none
polls_start() {
	local dir=$TRACING/instances/polls$1
	[ ! -d "$dir" ] || echo "$BASHPID" > "$dir/set_event_pid"
}

polls_stop() {
	local dir=$TRACING/instances/polls$1
	POLLS=
	[ ! -d "$dir" ] || POLLS=$(grep -c bdi_drain: "$dir/trace")
}

# A program that logs: 1 MiB twice a second, a tenth of the disk.
light() {
	local i
	polls_start "$1"
	for ((i = 0; i < LIGHT_ROUNDS; i++)); do
		dd if=/dev/zero of="$MNT/light" bs=64k count=16 oflag=append conv=notrunc status=none
		sleep .5
	done
}

# many(count) - so many cgroups write to the stick: how long does what is dirty take?
many() {
	local i writers=()
	other_disk "many$1" usb-stick
	for ((i = 0; i < $1; i++)); do
		cgroup_create "many$1-$i"
		cgroup_exec "many$1-$i" dd if=/dev/zero of="$MNT/file$i" bs=64k count=65536 status=none &
		writers+=("$!")
	done
	sleep "$MANY_S"
	note "$1 cgroups: limit $(drained) bytes, $(dirty_bytes) dirty"
	stop_tasks "${writers[@]}"
	sync_seconds
	note "$1 cgroups: sync takes $TOOK s"
	limited "groups: what $1 leave is written in time" holds "$TOOK * 1000 <= $STICK_MS * $MANY_SHARE"
	wbdisk_set "many$1" link_mbps 1000
	disk_drop "many$1"
}

# idle_ones() - cgroups that wrote a little and stopped have more than twice the limit
#	dirty: a writer beside them must not wait until that is old
idle_ones() {
	local i
	other_disk idle fifo link_mbps=$IDLE_MBPS
	for ((i = 0; i < IDLE_CGROUPS; i++)); do
		cgroup_create "idle$i"
		cgroup_run "idle$i" dd if=/dev/zero of="$MNT/idle$i" bs=64k count=16 status=none
	done
	limit "$IDLE_MS"
	timeout "$IDLE_MAX_S" dd if=/dev/zero of="$MNT/file" bs=64k count=$((IDLE_MIB * 16)) status=none
	i=$?
	limit 0
	limited "groups: $IDLE_MIB MiB beside idle ones with $IDLE_CGROUPS MiB within $IDLE_MAX_S s" [ "$i" -eq 0 ]
	disk_drop idle
}

# steadily() - 128 MiB, in 25 s
steadily() {
	local i
	for ((i = 0; i < 128; i++)); do
		head -c "$MIB" /dev/zero || break
		sleep .2
	done
}

# own_limit() - of a cgroup whose device stands still
own_limit() {
	local dirty first limit
	other_disk hard fifo link_mbps=$FAST_MBPS
	set_limits ratio 10 20
	limit 0
	cgroup_create hard "$HARD_MAX"
	# What has to be read for a new file, and whose it is.
	cgroup_run hard dd if=/dev/zero of="$MNT/file" bs=64k count=1 conv=fsync status=none
	wbdisk_set hard stall_ms "$HARD_STALL_MS"
	# No faster than the counters of the cgroup follow, every 2 s.
	steadily | cgroup_exec hard dd of="$MNT/file" bs=1M iflag=fullblock conv=notrunc status=none &
	WRITER=$!
	sleep "$HARD_FIRST_S"
	limit "$STICK_MS" || note "without a time limit"
	first=$(($(cgroup_stat hard file_dirty) + $(cgroup_stat hard file_writeback)))
	sleep "$HARD_S"
	dirty=$(($(cgroup_stat hard file_dirty) + $(cgroup_stat hard file_writeback)))
	limit=$((HARD_MAX / 5))
	wbdisk_set hard stall_ms 0
	stop_tasks "$WRITER"
	note "own limit $limit, dirty $first, then $dirty"
	check "groups: one stops at its own limit where the device stands still" \
		holds "$dirty >= $limit / 2 && $dirty <= $((first > limit ? first : limit)) * $HARD_SLACK"
	disk_drop hard
}

test_groups() {
	local off count
	only_age groups || return 0
	set_limits bytes $((GROUPS_LIMIT / 2)) "$GROUPS_LIMIT"
	limit 0
	groups off
	off=$SLEPT
	! limit "$GROUPS_MS" || groups on
	limit 0
	note "the light one slept $off ms without the limit"
	limited "groups: the light one sleeps a hundredth of the time at most" holds "$SLEPT <= $LIGHT_MS"
	limited "groups: the light one does not look at the limit for each page" \
		holds "${POLLS:-0} > 0 && $POLLS * $POLL_PAGES <= $LIGHT_ROUNDS * $MIB / $PAGE"
	limited "groups: dirty memory stays below the global limit" \
		holds "$PEAK <= $GROUPS_LIMIT * 33 / 32 + $SLACK_PAGES * $PAGE"
	set_limits ratio 10 20
	idle_ones
	own_limit
	limit "$STICK_MS"
	for count in 1 4 16; do
		many "$count"
	done
	limit 0
}

declare -A RESULTS=([knobs]=7 [off]=1 [stick]=2 [step]=2 [lower]=2 [crowd]=3 [change]=4 [beside]=2 [quiet]=3 [slow]=3 [extents]=4 [groups]=8)
wb_begin
[ -x "$WB_DIR/vmstat_sampler" ] || skip_all "needs vmstat_sampler: make"
need_wbdisk
cgroups_check
throttle_trace_start 16384 || skip_all "needs the tracepoint writeback:balance_dirty_pages"
run_parts
