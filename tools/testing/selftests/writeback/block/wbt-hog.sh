#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Writeback beside reads does not depend on a CPU that a real-time task keeps: what
# throttling by bytes (wbt_policy) holds is sent by a worker, and may not wait for the
# CPU where something completed.  A writer that syncs and a reader are on one CPU of
# two, and the task on the other; then the other way round.  Completions come on either.
#
# The disk has no file system, which would have work of its own for a CPU.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/wbt.sh
. "$WB_DIR/lib/wbt.sh"

readonly CPUS=2 RT_PRIO=50
# 64 KiB take 3.3 ms: far more than the CPUs' turns in an emulator.
readonly LINK_MBPS=20 FILE_MIB=12 READ_IOPS=100 READ_S=60 WARM_S=.3
# A worker that has to wait for the task runs once in a second, if at all: 2.3 times were
# seen.  Two CPUs in an emulator are never the same twice: 1.03 to 1.21 times.
readonly LONGER=1.5	# times as without it
readonly HOG_S=3

about title "throttling by bytes: writeback beside reads does not wait for a CPU that a real-time task keeps"
about replays "none: the worker that sends held writes"
about wall 60
about cpus "$CPUS"
about programs dd awk chrt taskset
about kernel BLK_WBT BLK_WBT_MQ
about series
about not_fast "which has one CPU"
measures hog_s_X s lower "time to write and sync 12 MiB at 20 MB/s: by policy; the CPU that is kept, or none"
case_parse "$@"

declare -A TOOK	# us

# hog(CPU) - for a time in which all is written otherwise
hog() {
	exec chrt -f "$RT_PRIO" taskset -c "$1" bash -c "while ((SECONDS < $HOG_S)); do :; done"
}

# written(policy, CPU of the tasks, CPU kept, if any)
written() {
	local from to busy="" name="$1_${3:-none}" opened reader
	disk_raw fifo link_mbps="$LINK_MBPS"
	queue_set scheduler none || die "cannot set the scheduler"
	[ -z "$policies" ] || queue_set wbt_policy "$1" || die "cannot set the policy"
	# The last one to close a disk waits for work on every CPU.
	exec {opened}<> "$DISK_DEV"
	taskset -c "$2" chrt -f "$RT_PRIO" "$WB_DIR/open_reader" "$DISK_DEV" "$READ_IOPS" "$READ_S" \
		"$((OPT[seed] + 1))" > /dev/null 2>> "$WB_OUT/tasks.err" &
	reader=$!
	sleep "$WARM_S"
	if [ -n "${3:-}" ]; then
		hog "$3" &
		busy=$!
		sleep .1
	fi
	now_us from
	taskset -c "$2" dd if=/dev/zero of="$DISK_DEV" bs=64k count=$((FILE_MIB * 16)) \
		seek=16384 conv=notrunc,fsync status=none || die "dd failed"
	now_us to
	kill -0 "$reader" || die "the reader is gone"
	[ -z "$busy" ] || kill -0 "$busy" || die "the real-time task is gone"
	kill "$reader" ${busy:+"$busy"}
	wait
	TOOK[$name]=$((to - from))
	note "$name: ${TOOK[$name]} us"
	metric "hog_s_$name" "$(calc "${TOOK[$name]} / 1e6")"
	exec {opened}>&-
	wbdisk_destroy test
}

wb_begin
[ "$(nproc)" -ge "$CPUS" ] || skip_all "needs $CPUS CPUs"
need_wbdisk
[ -x "$WB_DIR/open_reader" ] || skip_all "needs open_reader: make"
disk_raw fifo
policies=
[ ! -e "/sys/block/$DISK_NAME/queue/wbt_policy" ] || policies=1
wbdisk_destroy test
set_dirty writeback_centisecs 0
ktap_set_plan 5
for policy in requests bytes; do
	if [ "$policy" = bytes ] && [ -z "$policies" ]; then
		skip_test "$policy: CPU 0 kept" "no wbt_policy"
		skip_test "$policy: CPU 1 kept" "no wbt_policy"
		continue
	fi
	written "$policy" 1
	for cpu in 0 1; do
		written "$policy" $((1 - cpu)) "$cpu"
		check "$policy: CPU $cpu kept" \
			holds "${TOOK[${policy}_$cpu]} <= $LONGER * ${TOOK[${policy}_none]}"
	done
done
check_dmesg
ktap_finished
