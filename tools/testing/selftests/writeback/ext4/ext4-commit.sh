#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What a journal commit of ext4 waits for:
#	fsync	time of fsync of a new 4-KiB file while --dirty-mib of another file are
#		dirty, on a disk of 30 MB/s.  With nodelalloc alone, data=ordered makes
#		the commit write all of that first
#	writers	fsyncs per second of many tasks that each write 16 KiB at random and
#		fsync, with a journal of 128 MiB: unwritten blocks cost a second
#		transaction each, for the conversion, as they do with delalloc

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"

readonly DISK_MIB=2048 DISK_MBPS=30
readonly FSYNCS=3
readonly FSYNC_S=0.15		# at most, where data need not be written
readonly ORDERED_FACTOR=0.5	# of the time the dirty data takes, at least, where it must
readonly JOURNAL_MIB=128
readonly WRITER_MIB=4
readonly WRITERS_RATIO=0.95	# against delalloc

about title "fsync of a small file on ext4 while another one is dirty, and of many tasks at once"
about replays \
	"none: tests dioread_nolock with nodelalloc; fails on the stock kernel, which ignores it"
about wall 50
about programs awk dd fio jq mke2fs e2fsck
about series
about not_fast \
	"where computing, which bounds its many writers, costs nothing (without them: --writers 0)"
axis dirty-mib 143 '1..9999 MiB' "what is dirty in another file"
axis writers 32 0..999 "tasks that write 16 KiB and fsync; 0 = no such test"
axis runtime 3 '1..600 s' "seconds they run"
measures commit_fsync_max_M s lower \
	"longest fsync of a new 4-KiB file while another file is dirty, mount options M"
measures commit_writer_iops_M iops higher "writes of 16 KiB with an fsync each, all tasks"
case_parse "$@"

# run_fsync(options) - sets WORST to the longest fsync in s
run_fsync() {
	local i start end
	disk_raw fifo capacity_mib=$DISK_MIB link_mbps=$DISK_MBPS
	ext4_new "$1"
	sync
	dd if=/dev/zero of="$MNT/large" bs=1M count="${OPT[dirty-mib]}" status=none
	WORST=0
	for ((i = 0; i < FSYNCS; i++)); do
		now_us start
		dd if=/dev/zero of="$MNT/small$i" bs=4K count=1 conv=fsync status=none
		now_us end
		WORST=$(awk -v w="$WORST" -v us=$((end - start)) 'BEGIN { s = us / 1e6; print (s > w ? s : w) }')
	done
	metric "commit_fsync_max_${1//,/_}" "$WORST"
	disk_teardown
}

# run_writers(options) - sets IOPS
run_writers() {
	disk_raw nvme-ssd capacity_mib=$DISK_MIB
	ext4_new "$1" -J "size=$JOURNAL_MIB"
	fio --name=w --directory="$MNT" --rw=randwrite --bs=16k --fsync=1 --size="${WRITER_MIB}M" \
		--fallocate=none --numjobs="${OPT[writers]}" --thread --group_reporting --ioengine=psync \
		--time_based --runtime="${OPT[runtime]}" --randseed="${OPT[seed]}" \
		--clocksource=clock_gettime --output-format=json > "$WB_OUT/fio_${1//,/_}.json" || die "fio fails"
	IOPS=$(jq '.jobs[0].write.iops' "$WB_OUT/fio_${1//,/_}.json")
	metric "commit_writer_iops_${1//,/_}" "$IOPS"
	ext4_end
}

wb_begin
need_wbdisk
ktap_set_plan 5
# The flusher stays out of it: nothing is old or over a limit.
if ! { set_dirty background_bytes $((1 << 30)) && set_dirty bytes $((3 << 29)) &&
       set_dirty expire_centisecs 60000; }; then
	die "cannot set vm.dirty_*"
fi
run_fsync delalloc
check "delalloc: fsync does not wait for other files" holds "$WORST <= $FSYNC_S"
run_fsync nodelalloc,dioread_nolock
check "nodelalloc,dioread_nolock: fsync does not wait for other files" holds "$WORST <= $FSYNC_S"
run_fsync nodelalloc
check "nodelalloc: a commit writes all new data" \
	holds "$WORST >= $ORDERED_FACTOR * ${OPT[dirty-mib]} * 1.048576 / $DISK_MBPS"
if [ "${OPT[writers]}" -gt 0 ]; then
	run_writers nodelalloc
	run_writers delalloc
	base=$IOPS
	run_writers nodelalloc,dioread_nolock
	check "many writers that fsync: no slower with dioread_nolock" \
		holds "$IOPS / $base >= $WRITERS_RATIO"
else
	skip_test "many writers that fsync: no slower with dioread_nolock" "--writers=0"
fi
check_dmesg
ktap_finished
