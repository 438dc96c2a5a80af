#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the cases about throttling by bytes share: disks with readers, a load, what
# the kernel says about it.
# shellcheck disable=SC2034 # some is for the cases only

# shellcheck source=../lib/wbt.sh
. "$WB_DIR/lib/wbt.sh"

readonly DEBUGFS=/sys/kernel/debug/block
readonly MIB=1048576
readonly RT_PRIO=50
readonly READERS=2 READER_IOPS=500 READ_MIB=16
# Far from what is written, on a disk without a file system.
readonly RAW_READ_OFFSET=8g
# Slow, so that a backlog stays for long: 64 KiB take 3.3 ms.
readonly SLOW_MBPS=20
# At rest: nothing moves for this time.
readonly REST=.3	# seconds
about programs fio awk dd chrt xfs_io mkfs.xfs mke2fs
about kernel BLK_WBT BLK_WBT_MQ DEBUG_FS FTRACE

# What is traced of the block layer.
readonly WRITES='rwbs ~ "*W*"'

# bytes_begin(name) - as wb_begin; needs the policy, debugfs and tracefs
bytes_begin() {
	local name=$1
	wb_begin
	need_wbdisk
	wbdisk_create test fifo || die "cannot make a disk"
	DISK_NAME=wbd-test
	need_policy
	[ -r "$DEBUGFS/$DISK_NAME/rqos/wbt/bytes" ] || mount -t debugfs debugfs "${DEBUGFS%/*}" 2> /dev/null
	[ -r "$DEBUGFS/$DISK_NAME/rqos/wbt/bytes" ] || skip_all "needs CONFIG_BLK_DEBUG_FS"
	wbdisk_destroy test
	trace_open "$name" 16384 block/block_bio_queue block/block_rq_issue wbdisk/wbdisk_queue wbt/wbt_bytes
}

# ---- disks -----------------------------------------------------------------

READ_FILE=	# what the readers read
READ_OFFSET=0

# queue_file(attribute)
queue_file() {
	echo "/sys/block/$DISK_NAME/queue/$1"
}

# queue_get(attribute) - its value; of several in a list, the one in brackets
queue_get() {
	value_of "$(queue_file "$1")"
}

# fresh(disk, fs, stack, options, [attribute=value...]) - the only disk is a new
# one with a file system and the file of the readers, and without a scheduler
fresh() {
	OPT+=([disk]=$1 [stack]=$3 [dir]="" [disk-set]="")
	STACK_DEV=
	disk_setup "$2" "$4" "${@:5}"
	READ_FILE=$MNT/read READ_OFFSET=0
	lay_out read "$READ_MIB"
	queue_set scheduler none
	trace_disks "$WRITES"
}

# fresh_raw(disk, [attribute=value...]) - the same without a file system
fresh_raw() {
	OPT+=([disk]=$1 [stack]=none)
	disk_raw "$1" "${@:2}"
	READ_FILE=$DISK_DEV READ_OFFSET=$RAW_READ_OFFSET
	trace_disks "$WRITES"
}

# dirty(file, KiB) - in the page cache
dirty() {
	dd if=/dev/zero of="$1" bs=64k count=$(($2 / 64)) conv=notrunc status=none ||
		die "cannot write $1"
}

# slow_down() - from here on the disk is slow
slow_down() {
	wbdisk_set test link_mbps "$SLOW_MBPS"
}

# ---- readers ---------------------------------------------------------------

READERS_PID=

# ioprio class of readers: SCHED_FIFO alone would make it RT, for which mq-deadline
# keeps all other requests back for 10 s.
readonly CLASS_BE=2

# At a higher priority than everything else.
READER_FIRST=(chrt -f "$RT_PRIO")

# fio_start(options...) - readers
fio_start() {
	start "${READER_FIRST[@]}" fio --filename="$READ_FILE" --offset="$READ_OFFSET" \
		--size="${READ_MIB}m" --rw=randread --bs=4k --direct=1 --ioengine=psync \
		--thread=1 --time_based --clocksource=clock_gettime \
		--randseed="${OPT[seed]}" --rate_iops="$READER_IOPS" \
		--prioclass="$CLASS_BE" --prio=4 "$@"
}

# all_read() - has every disk completed some reads?
all_read() {
	local name
	for name in "${DISK_MODELS[@]}"; do
		[ "$(wbdisk_stat "$name" reads)" -ge 20 ] || return
	done
}

# stats_reset() - of every disk
stats_reset() {
	local name
	for name in "${DISK_MODELS[@]}"; do
		wbdisk_set "$name" reset_stats 1
	done
}

# readers_run(fio options...) - returns when they read
readers_run() {
	stats_reset
	fio_start --runtime=600 "$@"
	READERS_PID=$STARTED
	loop_until all_read || die "the readers do not read: $(tail -n 1 "$WB_OUT/tasks.err")"
}

# readers_start() - a few that the disk satisfies
readers_start() {
	readers_run --name=readers --numjobs="$READERS"
}

readers_stop() {
	kill -INT "$READERS_PID"
	wait "$READERS_PID"
}

# ---- what the kernel says --------------------------------------------------

# bytes_get(disk, key) - one number of what debugfs knows
bytes_get() {
	awk -v key="$2" '$1 == key { print $2 }' "$DEBUGFS/$1/rqos/wbt/bytes"
}

# at_rest() - is nothing charged or held once nothing is written any more?
at_rest() {
	local left
	sync
	sleep "$REST"
	left=$(awk '/^(inflight|held|held_bytes) / && $2 != 0' "$DEBUGFS/$DISK_NAME/rqos/wbt/bytes") ||
		return
	[ -z "$left" ] && return
	note "${left//$'\n'/, } of $DISK_NAME is left"
	return 1
}
