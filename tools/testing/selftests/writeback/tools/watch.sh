#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# "wb watch" beside a writer whose limit is known: the system's, its cgroup's, or the
# disk's.  It has to name the task, the cgroup, the cause and about the time, and to
# leave no trace of its tracing.  Needs python3 and wb, which "wb run watch" puts
# into the guest.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"
# shellcheck source=../lib/tracefs.sh
. "$WB_DIR/lib/tracefs.sh"

readonly CGROUP_TRIES=10
readonly WB=/opt/wb/wb
readonly LINK_MBPS=40
readonly MB=1048576
# The disk is 10 times slower than dd: dd sleeps most of the time.
readonly SHARE_LOW=60 SHARE_HIGH=102
readonly RATE_LOW=0.7 RATE_HIGH=1.2

about title \
	"wb watch in the guest: names the task, cgroup and limit, and leaves tracing as it was"
about replays "none: tests wb watch"
about wall 60
about programs fio jq awk dd python3
about kernel BLK_WBT BLK_WBT_MQ CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK FTRACE
about python
about not_fast "where a cgroup's reclaim gives up before any time has passed"
axis_disk fifo
axis fs xfs 'xfs|ext4' "file system of the disk"
measures watch_slept_pct percent - "the writer's share of time asleep"
measures watch_write_mbps MB/s - "what was written to the disk"
measures 'watch_read_p50, watch_read_max' us - \
	"reads beside the writer, from submission to completion"
case_parse "$@"

# tracing_state() - what wb watch must not change
tracing_state() {
	ls "$TRACING/instances"
	(cd "$TRACING" && head -n 20 tracing_on trace_clock buffer_size_kb events/enable current_tracer \
		options/overwrite events/writeback/balance_dirty_pages/{enable,filter} \
		events/block/block_rq_complete/{enable,filter})
}

# start_writer() - dd that never ends by itself; its number in WRITER
start_writer() {
	dd if=/dev/zero of="$MNT/write" bs=256k 2> /dev/null &
	WRITER=$!
}

start_reader() {
	while :; do
		dd if="$MNT/read" of=/dev/null bs=4k count=512 iflag=direct 2> /dev/null
	done &
	READER=$!
}

# watch_once(name) - a report of 2 s as $WB_OUT/NAME.json
watch_once() {
	"$WB" watch --once --json --interval 2 > "$WB_OUT/$1.json" 2>> "$WB_OUT/wb.err"
}

# of(name, filter) - a value of a report
of() {
	jq -r "$2" "$WB_OUT/$1.json"
}

# task_of(name) - filter of the writer's entry
writer_of() {
	of "$1" ".tasks[] | select(.pid == $WRITER) | $2"
}

# writer_goes_on() - from the start where the disk is full, which a slow host's Python waits for
writer_goes_on() {
	kill -0 "$WRITER" 2> /dev/null && return
	note "the disk was full"
	rm -f "$MNT/write"
	start_writer
}

# holds_back(name, cause) - a new report NAME says that the cause holds the writer
holds_back() {
	writer_goes_on
	watch_once "$1" && [ "$(writer_of "$1" .cause)" = "$2" ]
}

# report(name, cause) - a report that should name the cause; in real time, where a
# busy host may let no pause of the writer end in the 2 s, the first that does
report() {
	if [[ ${OPT[disk]} = dev:* ]]; then
		loop_until holds_back "$1" "$2"
		[ -s "$WB_OUT/$1.json" ]
	else
		watch_once "$1"
	fi
}

# show(name) - the report for the log
show() {
	note "$1: $(of "$1" '{source, notes, throttle, tasks, cgroups} | tostring')"
}

live_worked() {
	grep -q "^$WRITER  *dd " "$WB_OUT/live" && ! grep -q Traceback "$WB_OUT/wb.err"
}

live_goes_on() {
	live_worked && return
	writer_goes_on
	return 1
}

wb_begin
[ -x "$WB" ] || skip_all "needs $WB: wb run watch"
disk_check
ktap_set_plan 12
share_low=$SHARE_LOW share_high=$SHARE_HIGH limit=$((32 * MB)) slept_low=500
if [[ ${OPT[disk]} = dev:* ]]; then
	# Real time: emulated Python takes a minute for a report where the host is busy.
	RETRY_FOR=240
	# QEMU's disk is faster than an emulated dd: what one write() dirties has to be too
	# much.  In real time a pause that begins in the 2 s, and the reading of the trace,
	# may be outside.
	share_low=0 share_high=200 limit=$((128 * 1024)) slept_low=1
else
	OPT[disk-set]=${OPT[disk-set]:-link_mbps=$LINK_MBPS}
fi
disk_setup "${OPT[fs]}"
dd if=/dev/zero of="$MNT/read" bs=1M count=16 conv=fsync 2> /dev/null
tracing_state > "$WB_OUT/tracing-before"
set_dirty bytes "$limit"
set_dirty background_bytes $((limit / 2))
source=tracepoints
! grep -q '^nr_dirty_throttled ' /proc/vmstat || source=counters
# Of tasks that start after this, the kernel knows how long each slept.
[ ! -e /proc/sys/kernel/task_delayacct ] || set_value /proc/sys/kernel/task_delayacct 1

start_writer
start_reader
sleep 3
check "reports once" report global global
show global
check "source is $source" [ "$(of global .source)" = "$source" ]
check "the writer slept most of the time" \
	holds "$(writer_of global .share_pct) > $share_low && $(writer_of global .share_pct) < $share_high"
metric watch_slept_pct "$(writer_of global .share_pct)"
check "for the system's limit" [ "$(writer_of global .cause)" = global ]
device=".devices[] | select(.name == \"$DISK_NAME\")"
metric watch_write_mbps "$(calc "$(of global "$device | .write_rate") / 1e6")"
if [ "$DISK_KIND" = wbdisk ]; then
	check "the disk's rate is that of its link" \
		holds "$(of global "$device | .write_rate") > $RATE_LOW * $LINK_MBPS * 1e6 &&
		       $(of global "$device | .write_rate") < $RATE_HIGH * $LINK_MBPS * 1e6"
else
	skip_test "the disk's rate is that of its link" "not a modelled disk"
fi
metric watch_read_p50 "$(of global "$device | .read.p50_us")"
metric watch_read_max "$(of global "$device | .read.max_us")"
# Each read waits behind writeback: too few in 2 s for a p99.
check "reads have percentiles" \
	holds "$(of global "$device | .read.p50_us // 0") > 50 &&
	       $(of global "$device | .read.max_us // 0") >= $(of global "$device | .read.p50_us // 0")"

# The shell makes background jobs ignore Ctrl-C.
env --default-signal=INT "$WB" watch --interval 1 > "$WB_OUT/live" 2>> "$WB_OUT/wb.err" &
live=$!
loop_until live_goes_on
kill -INT "$live"
wait "$live"
note "interrupted: exit code $?"
check "the live view reports, and ends at Ctrl-C" live_worked
note_file "$WB_OUT/live"

stop_tasks "$WRITER" "$READER"
rm -f "$MNT/write"
sync

# Plenty for all, little for this disk.
set_dirty bytes $((512 * MB))
set_dirty background_bytes $((256 * MB))
bdi_set strict_limit 1
bdi_set max_bytes "$limit"
start_writer
sleep 3
report device device
show device
check "a limit of the disk is named" [ "$(writer_of device .cause)" = device ]
stop_tasks "$WRITER"
bdi_set strict_limit 0
bdi_set max_ratio 100
rm -f "$MNT/write"
sync

# A cgroup whose share of its own memory is less than that.
cgroup_slept() {
	holds "$(of cgroup '[.cgroups[] | select(.path == "/wb-watch") | .slept_ms] | add // 0') > $slept_low"
}

if cgroups_enable memory io && cgroup_create watch $((128 * MB)); then
	set_dirty ratio 20
	set_dirty background_ratio 10
	# Its writeback is charged to it, so this is the rate of its own drain.
	[ "$DISK_KIND" = wbdisk ] ||
		echo "$(< "/sys/block/$DISK_NAME/dev") wbps=$((LINK_MBPS * 1000000))" > "$CGROUP/io.max"
	# What the kernel knows of a cgroup's dirty memory may be 4 s old, and whoever fills
	# the cgroup before that waits for reclaim, or is killed: half of it at first.
	# shellcheck disable=SC2016 # the inner shell's
	cgroup_exec watch bash -c 'dd if=/dev/zero of="$1" bs=256k count=256 && sleep 5 &&
		exec dd if=/dev/zero of="$1" bs=256k seek=256 conv=notrunc' bash "$MNT/write" 2> /dev/null &
	WRITER=$!
	for ((i = 0; i < CGROUP_TRIES; i++)); do
		sleep 2
		watch_once cgroup
		[ "$(writer_of cgroup .cause)" = cgroup ] && cgroup_slept && break
	done
	show cgroup
	check "a limit of the cgroup is named" [ "$(writer_of cgroup .cause)" = cgroup ]
	check "so is the cgroup" cgroup_slept
	stop_tasks "$WRITER"
else
	skip_test "a limit of the cgroup is named" "no memory and io controllers"
	skip_test "so is the cgroup" "no memory and io controllers"
fi

tracing_state > "$WB_OUT/tracing-after"
check "every setting of tracing is as before" cmp "$WB_OUT/tracing-before" "$WB_OUT/tracing-after"
[ ! -s "$WB_OUT/wb.err" ] || note_file "$WB_OUT/wb.err"
check_dmesg
disk_teardown
ktap_finished
