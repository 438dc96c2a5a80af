#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What else looks at a cgroup's writes while throttling by bytes (wbt_policy) holds
# them, where the limits of the disk split them as well:
#	stat	io.stat counts each byte once
#	latency	io.latency takes each write that it counts for done once: with few of
#		them left to it, the cgroup goes on.  io.max throttles it before.
#	cost	io.cost gets back what held and merged writes were charged: the cgroup
#		becomes idle

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/by-bytes.sh
. "$WB_DIR/lib/by-bytes.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

# Of a bio of several pages or of a large folio, each is a request of its own.
readonly SPLIT=(link_mbps=1000 max_segments=1)
readonly FILES=6 FILE_MIB=8 WIOPS=2000
# io.stat has the file system's metadata, too.
readonly STAT_FACTOR=1.05
# A latency in us that every read misses, and one that none does; how long it takes
# until the other cgroup may have one write in flight, and to see it go on, seconds.
readonly MISSED_US=1 MET_US=100000000 THROTTLE_S=15 GOES_ON_S=5
readonly PAUSE=.05	# seconds between files
# Short of tags, so that held writes are merged in the scheduler.
readonly MERGED=(link_mbps=100 queue_depth=4 latency_ns=300000)
readonly COST_MBPS=100 COST_IOPS=20000 COST_READ_IOPS=200 COST_S=10
readonly COST_QOS="enable=1 ctrl=user rpct=95 rlat=2000 wpct=95 wlat=20000 min=50 max=200"

about title "throttling by bytes: io.stat, io.latency and io.cost see held writes as any others"
about replays "none: tests wbt_policy=bytes; skips on a kernel without it"
about wall 60
about kernel BLK_CGROUP CGROUPS MEMCG BLK_CGROUP_IOLATENCY BLK_CGROUP_IOCOST BLK_DEV_THROTTLING
about series
measures cgroup_stat_ratio ratio lower "bytes written by io.stat over those of the files"
case_parse "$@"

READER=

# read_start(IOPS, [seconds]) - a reader that the disk satisfies, which does not spin as fio does
read_start() {
	start cgroup_exec reader "$WB_DIR/open_reader" "$READ_FILE" "$1" "${2:-600}" "${OPT[seed]}"
	READER=$STARTED
}

read_stop() {
	kill "$READER"
	wait "$READER" 2> /dev/null
}

# of_disk(file, words) - set in a cgroup's ``file`` for the disk
of_disk() {
	echo "$(< "/sys/block/$DISK_NAME/dev") $2" > "$CGROUPS/$1" ||
		die "cannot set $1: $2"
}

# io_stat(name, key) - of the disk, 0 if it has none
io_stat() {
	awk -v disk="$(< "/sys/block/$DISK_NAME/dev")" -v key="$2" -F '[ =]' '
		$1 == disk { for (i = 2; i < NF; i++) if ($i == key) sum = $(i + 1) }
		END { print sum + 0 }' "$CGROUPS/wb-$1/io.stat"
}

# write_files() - beside readers, in the cgroup, with io.max
write_files() {
	local i
	for ((i = 0; i < FILES; i++)); do
		cgroup_run writer dd if=/dev/zero of="$MNT/v$i" bs=1M count="$FILE_MIB" conv=fsync status=none ||
			die "cannot write"
	done
	sync
}

# small_files() - one after the other until told to stop; how many there were is the
# size of a file
small_files() {
	local i
	for ((i = 0; ; i++)); do
		[ ! -e "$WB_OUT/stop" ] || return 0
		dd if=/dev/zero of="$MNT/w$((i % 20))" bs=256k count=4 conv=fsync status=none || return
		sleep "$PAUSE"
		printf . >> "$WB_OUT/small"
	done
}

goes_on() {
	local before after
	before=$(stat -c %s "$WB_OUT/small")
	sleep "$GOES_ON_S"
	after=$(stat -c %s "$WB_OUT/small")
	note "in $GOES_ON_S s $((after - before)) files after $before"
	[ "$after" -gt "$before" ]
}

test_split() {
	local ratio writer
	fresh fifo ext4 none "" "${SPLIT[@]}"
	of_disk wb-writer/io.latency "target=$MET_US"
	of_disk wb-writer/io.max "wiops=$WIOPS"
	read_start "$READER_IOPS"
	write_files
	ratio=$(calc "$(io_stat writer wbytes) / ($FILES * $FILE_MIB * $MIB)")
	metric cgroup_stat_ratio "$ratio"
	check "stat: the limits of the disk split what was held" \
		grep -q block_split: "$TRACE/trace"
	check "stat: io.stat counts each byte once" \
		holds "$ratio >= 1 && $ratio <= $STAT_FACTOR"
	read_stop

	of_disk wb-writer/io.max wiops=max
	of_disk wb-reader/io.latency "target=$MISSED_US"
	: > "$WB_OUT/small"
	read_start "$READER_IOPS" "$THROTTLE_S"
	start cgroup_run writer small_files
	writer=$STARTED
	wait "$READER"
	check "latency: a cgroup with few writes left to it goes on" goes_on
	touch "$WB_OUT/stop"
	wait "$writer"
	of_disk wb-reader/io.latency target=0
	of_disk wb-writer/io.latency target=0
	disk_teardown
}

# is_idle() - did io.cost find the writer's cgroup idle?
is_idle() {
	grep -q "iocost_iocg_idle:.*/wb-writer" "$TRACE/trace"
}

test_cost() {
	local i
	fresh_raw fifo "${MERGED[@]}"
	# Else enabling io.cost turns wbt off.
	if ! queue_set scheduler mq-deadline || ! queue_set wbt_lat_usec 3000; then
		die "cannot set up the disk"
	fi
	of_disk io.cost.qos "$COST_QOS"
	of_disk io.cost.model "ctrl=user model=linear rbps=${COST_MBPS}000000 rseqiops=$COST_IOPS rrandiops=$COST_IOPS wbps=${COST_MBPS}000000 wseqiops=$COST_IOPS wrandiops=$COST_IOPS"
	read_start "$COST_READ_IOPS"
	for i in 0 1 2; do
		cgroup_run writer dd if=/dev/zero of="$DISK_DEV" bs=64k count=512 seek=$((i * 1000)) conv=notrunc,fsync status=none ||
			die "cannot write"
	done
	read_stop
	sync
	sleep "$COST_S"
	check "cost: io.cost charged the cgroup" \
		grep -q "iocost_iocg_activate:.*/wb-writer" "$TRACE/trace"
	check "cost: the cgroup becomes idle" is_idle
	of_disk io.cost.qos enable=0
}

# ---- main ------------------------------------------------------------------

bytes_begin cgroup
cgroups_check
for event in block/block_split iocost/iocost_iocg_idle iocost/iocost_iocg_activate; do
	trace_event "$TRACE" "$event" || skip_all "needs the trace event $event"
done
cgroup_create writer
cgroup_create reader
ktap_set_plan 6
test_split
test_cost
check_dmesg
ktap_finished
