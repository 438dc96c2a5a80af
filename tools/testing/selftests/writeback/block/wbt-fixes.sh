#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Three defects of writeback throttling that counts requests, and their fixes:
#	flush	an empty flush waits in wbt as if it were a background write
#	sync	a write that someone waits for queues up behind background writes
#		that came earlier
#	depth	after a switch to the scheduler none, limits are those of the queue of
#		the scheduler before, and writes can take every tag
#
# For flush and sync the disk is stopped until as many background writes are in
# flight as wbt allows and their tasks sleep in it; then the stacks of the tasks
# and the order of block_bio_queue (arrives) and block_getrq (admitted) tell, and
# no clock.  Background writes are sync_file_range(SYNC_FILE_RANGE_WRITE) of
# several tasks, the others are fdatasync of data whose blocks are there already,
# so that the first bio is no matter of the journal.
#
# A last test is that background writes go on beside 20 tasks that sync.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/wbt.sh
. "$WB_DIR/lib/wbt.sh"

# Fast enough is what any disk does, slow only one that stands still.
readonly WBT_LAT_US=50000
# The same for every profile; without a cache to flush there are no flushes.
readonly DISK=(queue_depth=32 write_cache=1)
# With a queue of 64, which 32 commands get from mq-deadline, wbt lets through 24
# background writes at once, 48 with those that someone waits for.  64 requests of
# each writer are more, so that none can finish, and 32 writers are, so that not
# all can go on together.
readonly WRITERS=32 WRITE_MIB=2 REQUEST_KIB=32
# Ended by hand; after an interrupt, the tasks are only gone when it is over.
readonly STALL_MS=60000
# More than the two windows of wbt that raise its limits to their most.
readonly SETTLE=.5	# seconds
readonly SYNC_TASKS=20 FAIR_WRITERS=6 FAIR_WRITE_MIB=4 FAIR_LATENCY_NS=5000000 FAIR_SECONDS=1.5
# A background write has its turn after as many sync writes as wbt lets through at
# once, 48 at most.
readonly FAIR_SHARE=50
# One second at 450 MB/s: several windows of wbt.
readonly DEPTH_MIB=450

about title \
	"throttling by requests: empty flushes, writes that someone waits for, depth without a scheduler"
about replays "none: tests three fixes; fails on the stock kernel, whose defects it shows"
about wall 60
about programs fio xfs_io
about kernel BLK_WBT BLK_WBT_MQ FTRACE STACKTRACE
about series
about not_fast "where its 32 writers do not all come to wait, for a reason not found yet"
axis_disk sata
axis fs xfs 'xfs|ext4' "file system of the disk"
measures 'flush_passed_by, sync_passed_by, sync_full_passed_by' requests lower \
	"background writes admitted before the flush, or before the sync write that waits"
measures flush_wait_max ms lower "longest wait of a flush"
measures depth_max requests lower \
	"most requests that nothing but writes may have in flight, without a scheduler"
measures 'fair_sync, fair_background' requests - "writes of each kind admitted beside each other"
measures fair_background_wait_max ms lower "longest wait of a background write beside them"
case_parse "$@"

# ---- disk and trace --------------------------------------------------------

# fresh([attribute=value...]) - file system on a new disk that wbt throttles by
# counting requests; its events are traced
#	It keeps its scheduler, see test_depth.
fresh() {
	local options=
	# Reads of ext4's own in the stall would make wbt lower its limits.
	[ "${OPT[fs]}" != ext4 ] || options=no_prefetch_block_bitmaps
	disk_setup "${OPT[fs]}" "$options" "${DISK[@]}" "$@"
	if [ -e "/sys/block/$DISK_NAME/queue/wbt_policy" ]; then
		queue_set wbt_policy requests || die "no policy to test"
	fi
	# This sets the step to 0, too.
	queue_set wbt_lat_usec "$WBT_LAT_US" || die "wbt is off"
	# A new disk counts as one whose writers were throttled in the last second,
	# and wbt then lets background writes have the limit of all others.
	sleep 1.2
	trace_disks ""
}

# dirty(file, KiB) - in the page cache
dirty() {
	dd if=/dev/zero of="$MNT/$1" bs="$2k" count=1 conv=notrunc status=none ||
		die "cannot write $MNT/$1"
}

# ---- tasks that sleep ------------------------------------------------------

# throttled(pid...) - do all these tasks sleep in wbt?
throttled() {
	local stacks=("${@/#//proc/}")
	[ "$(grep -ls rq_qos_wait "${stacks[@]/%//stack}" | wc -l)" -eq $# ]
}

# arrived/admitted(pid) - has the task handed a bio to the block layer, and has it
# got a request for it?
arrived() {
	events | grep -q "^block_bio_queue [0-9.]* $1 "
}

admitted() {
	events | grep -q "^block_getrq [0-9.]* $1 "
}

# at_rest() - all background writers sleep, and no limit rises any more
at_rest() {
	local before
	throttled "${BACKGROUND_PIDS[@]}" || return
	before=$(events | grep -c ^block_getrq)
	sleep "$SETTLE"
	throttled "${BACKGROUND_PIDS[@]}" && [ "$(events | grep -c ^block_getrq)" = "$before" ]
}

# fill() - stop the disk and fill wbt; one result
fill() {
	local i
	queue_set max_sectors_kb "$REQUEST_KIB"
	for ((i = 0; i < WRITERS; i++)); do
		dirty "background$i" $((WRITE_MIB * 1024))
	done
	trace_clear
	wbdisk_set test stall_ms "$STALL_MS"
	background_start "$WRITERS" "$WRITE_MIB"
	check "$1: $WRITERS background writers sleep in wbt" loop_until at_rest
	note "$(events | grep -c ^block_getrq) requests in flight"
}

# release() - let the disk go on and every task end
release() {
	wbdisk_set test stall_ms 0
	wait
}

decided() {
	admitted "$1" || throttled "$1"
}

# not_throttled(pid) - was a task that came while wbt is full let through?
not_throttled() {
	if ! loop_until arrived "$1"; then
		note "it does no I/O"
		return 1
	fi
	loop_until decided "$1"
	admitted "$1" && return
	! throttled "$1" || note "it sleeps in wbt: $(grep -o -m 1 'rq_qos_wait.*' "/proc/$1/stack")"
	return 1
}

# passed(pid) - how many requests of the background writers were admitted between
# the arrival and the admission of this task's first bio; nothing if it never was
passed() {
	events | awk -v pid="$1" -v writers="${BACKGROUND_PIDS[*]}" '
		BEGIN { n = split(writers, w, " "); while (n) writer[w[n--]] = 1 }
		$1 == "block_bio_queue" && $3 == pid { here = 1 }
		$1 == "block_getrq" && $3 == pid && here { print count + 0; exit }
		$1 == "block_getrq" && $3 in writer && here { count++ }'
}

lay_out_writers() {
	local i
	for ((i = 0; i < WRITERS; i++)); do
		lay_out "background$i" "$WRITE_MIB"
	done
}

# ---- the tests -------------------------------------------------------------

# fsync of a file that is clean is one FLUSH, by blkdev_issue_flush().
test_flush() {
	local flush bios n
	fresh
	lay_out_writers
	lay_out clean 1
	sync
	fill flush
	start sync "$MNT/clean"
	flush=$STARTED
	check "flush: it is not throttled" not_throttled "$flush"
	release
	bios=$(events | awk -v pid="$flush" '
		$1 == "block_bio_queue" && $3 == pid { printf "%s %s;", $5, $8 }')
	check "flush: it was a flush and nothing else" [ "$bios" = "FWS 0;" ]
	n=$(passed "$flush")
	metric flush_passed_by "$n"
	check "flush: no background write goes before it" [ "$n" = 0 ]
	metric flush_wait_max "$(flushes)"
	disk_teardown
}

# flushes() - the same without a stop: the longest of ten waits, ms
flushes() {
	local i
	for ((i = 0; i < WRITERS; i++)); do
		dirty "background$i" $((WRITE_MIB * 1024))
	done
	trace_clear
	background_start "$WRITERS" "$WRITE_MIB"
	for ((i = 0; i < 10; i++)); do
		sync "$MNT/clean"
	done
	wait
	events | awk '$8 == 0 && $1 == "block_bio_queue" { since[$3] = $2 }
		$8 == 0 && $1 == "block_getrq" && $2 - since[$3] > most { most = $2 - since[$3] }
		END { print most * 1000 }'
}

test_sync() {
	local one two n
	fresh
	lay_out_writers
	lay_out one 1
	lay_out two 1
	lay_out many "$WRITE_MIB"
	sync
	dirty one 4
	dirty two 4
	dirty many $((WRITE_MIB * 1024))
	fill sync
	start sync -d "$MNT/one"
	one=$STARTED
	check "sync: with room below the limit of sync writes it does not wait" not_throttled "$one"
	# As many as that limit allows.
	start sync -d "$MNT/many"
	check "sync: a large one fills that, too" loop_until throttled "$STARTED"
	start sync -d "$MNT/two"
	two=$STARTED
	check "sync: then the next one waits" loop_until throttled "$two"
	release
	n=$(passed "$one")
	metric sync_passed_by "$n"
	check "sync: no background write goes before the first" [ "$n" = 0 ]
	n=$(passed "$two")
	metric sync_full_passed_by "$n"
	# One may have its turn.
	check "sync: nor more than one before the last" [ "${n:-2}" -le 1 ]
	disk_teardown
}

# More tasks than background writes are allowed in flight, on a disk that needs
# 5 ms for each write: whenever one completes, the next sync write is there.
test_fair() {
	local i sync background wait_ms jobs=()
	fresh "latency_ns=$FAIR_LATENCY_NS"
	for ((i = 0; i < FAIR_WRITERS; i++)); do
		lay_out "background$i" "$FAIR_WRITE_MIB"
		jobs+=(--name="background$i" --filename="$MNT/background$i" --size="${FAIR_WRITE_MIB}m"
			--rw=write --bs=128k --sync_file_range=write:1 --overwrite=1)
	done
	lay_out sync 16
	sync
	trace_clear
	fio --thread --clocksource=clock_gettime --time_based --runtime="$FAIR_SECONDS" \
		--randseed="${OPT[seed]}" \
		--name=sync --filename="$MNT/sync" --size=16m --rw=randwrite --bs=4k \
		--overwrite=1 --numjobs="$SYNC_TASKS" \
		--sync_file_range=wait_before,write,wait_after:1 \
		"${jobs[@]}" > "$WB_OUT/fair.log" 2>&1
	check "fair: the writers ran" [ $? = 0 ]
	# Sync ones are WS; the longest wait is that of a background write.
	read -r sync background wait_ms < <(events | awk '
		$1 == "block_bio_queue" && $5 == "W" { since[$3] = $2 }
		$1 == "block_getrq" && $5 == "WS" { sync++ }
		$1 == "block_getrq" && $5 == "W" {
			background++
			if ($3 in since && $2 - since[$3] > most)
				most = $2 - since[$3]
			delete since[$3]
		}
		END { print sync + 0, background + 0, most * 1000 }')
	metric fair_sync "$sync"
	metric fair_background "$background"
	metric fair_background_wait_max "$wait_ms"
	check "fair: $SYNC_TASKS tasks sync all the time" [ "$sync" -ge $((SYNC_TASKS * 10)) ]
	check "fair: one in $FAIR_SHARE requests is a background one" \
		[ $((background * FAIR_SHARE)) -ge "$sync" ]
	disk_teardown
}

# test_depth() - nothing but writes raises the limits to their most: three quarters
# of the queue, which without a scheduler is the tags
test_depth() {
	local most tags
	fresh
	tags=$(wbdisk_get test queue_depth)
	check "depth: the scheduler can be none" queue_set scheduler none
	trace_clear
	dd if=/dev/zero of="$MNT/write" bs=1M count=$DEPTH_MIB conv=fsync status=none 2> "$WB_OUT/dd.log"
	most=$(events | sed -n 's/^wbt_step .*max=\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
	metric depth_max "${most:-0}"
	check "depth: nothing but writes raises the limits" [ "${most:-0}" -gt 16 ]
	check "depth: they leave a quarter of the tags to reads" [ "${most:-$tags}" -le $((tags * 3 / 4)) ]
	disk_teardown
}

# ---- main ------------------------------------------------------------------

wb_begin
[[ -z "${OPT[dir]}" && ${OPT[disk]} != dev:* ]] ||
	skip_all "needs the modelled disk, which can be stopped"
disk_check
[ -r /proc/self/stack ] || skip_all "needs /proc/PID/stack (CONFIG_STACKTRACE)"
trace_open wbt-fixes 8192 block/block_bio_queue block/block_getrq wbt/wbt_timer wbt/wbt_step
# The flusher stays out of it, and nobody waits for memory to become clean.
set_dirty background_ratio 50
set_dirty ratio 60
set_dirty writeback_centisecs 0

ktap_set_plan 17
test_flush
test_sync
test_fair
test_depth
check_dmesg
ktap_finished
