#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What throttling by bytes (wbt_policy) does not hold, is limited by its number as
# by requests: discards and swap, on a disk that has many tags,
#	alone	while nobody reads
#	reads	beside reads that the disk satisfies in time (wbt_lat_usec)
#	fsync	beside small fsyncs that take longer than that, which are no reads
#	late	beside reads that take longer: then there are as few
#	swap	from a small cgroup

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/wbt.sh
. "$WB_DIR/lib/wbt.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

readonly MIB=1048576
# 16384 of 64 KiB, so that it takes several windows of 100 ms
readonly TAGS=1023 DISCARD_MIB=1024 DISCARD_BYTES=65536
readonly LATENCY_NS=1000000 SLOW_NS=5000000
# Far from what is discarded.
readonly BESIDE_KIB=$((8 * 1024 * 1024)) GAP=.02	# KiB; seconds
readonly LONGER=1.25	# times as by requests
# Read late, there is one discard at a time and more once in a while: by chance.
readonly LATE_MIB=16 LATE_FACTOR=2
readonly SWAPPED_MIB=64 SWAP_MEMORY_MIB=16

about title "throttling by bytes: discards and swap, which are not held, are as fast as by requests"
about replays "none: tests wbt_policy=bytes; skips on a kernel without it"
about wall 30
about programs blkdiscard dd awk mkswap
about kernel BLK_WBT BLK_WBT_MQ SWAP CGROUPS MEMCG
about series
measures unheld_late ratio - "16 MiB of discards beside reads that are late: time by bytes over that by requests"
measures unheld_X ratio lower \
	"the same of 1 GiB of discards, or of 48 MiB of swap"
case_parse "$@"

# ---- load ------------------------------------------------------------------

BESIDE=	# the task that reads or writes beside

beside_read() {
	local i=0
	while sleep "$GAP"; do
		dd if="$DISK_DEV" bs=4k count=1 skip=$((BESIDE_KIB / 4 + i++ % 512)) iflag=direct
	done
}

beside_fsync() {
	while sleep "$GAP"; do
		dd if=/dev/urandom of="$DISK_DEV" bs=4k count=1 seek=$((BESIDE_KIB / 4)) conv=notrunc,fsync
	done
}

beside_start() {
	BESIDE=
	[ -n "$1" ] || return 0
	start "beside_$1"
	BESIDE=$STARTED
	sleep .2
}

beside_stop() {
	[ -n "$BESIDE" ] || return 0
	kill "$BESIDE"
	wait "$BESIDE" 2> /dev/null
}

# unheld_disk(policy, latency) - a disk of which nothing is known
unheld_disk() {
	disk_raw fifo discard=1 queue_depth="$TAGS" latency_ns="$2"
	if ! queue_set scheduler none || ! queue_set discard_max_bytes "$DISCARD_BYTES" ||
	   ! queue_set wbt_policy "$1"; then
		die "cannot set up the disk"
	fi
}

# discards(var, MiB) - how long they take, us
discards() {
	local from to
	now_us from
	blkdiscard -o 0 -l $(($2 * MIB)) "$DISK_DEV" || die "cannot discard"
	now_us to
	printf -v "$1" '%s' $((to - from))
}

# discards_both(latency, MiB, [beside]) - by both policies, in TOOK
declare -A TOOK
discards_both() {
	local policy
	for policy in requests bytes; do
		unheld_disk "$policy" "$1"
		beside_start "${3:-}"
		discards "TOOK[$policy]" "$2"
		beside_stop
		wbdisk_destroy test
	done
	note "${3:-alone}, $(($1 / 1000)) us: ${TOOK[requests]} us by requests, ${TOOK[bytes]} us by bytes"
}

# as_fast(name, title)
as_fast() {
	metric "unheld_$1" "$(calc "${TOOK[bytes]} / ${TOOK[requests]}")"
	check "$1: $2 are as fast as by requests" \
		holds "${TOOK[bytes]} <= $LONGER * ${TOOK[requests]}"
}

test_discards() {
	discards_both "$LATENCY_NS" "$DISCARD_MIB"
	as_fast alone "discards"
	discards_both "$LATENCY_NS" "$DISCARD_MIB" read
	as_fast reads "discards beside reads in time"
	discards_both "$SLOW_NS" "$DISCARD_MIB" fsync
	as_fast fsync "discards beside slow fsyncs"
	discards_both "$SLOW_NS" "$LATE_MIB" read
	metric unheld_late "$(calc "${TOOK[bytes]} / ${TOOK[requests]}")"
	check "late: discards beside late reads are as slow as by requests" \
		holds "$LATE_FACTOR * ${TOOK[bytes]} >= ${TOOK[requests]}"
}

# swap_out() - push some tmpfs out of a small cgroup
swap_out() {
	cgroup_run swap dd if=/dev/urandom of="$WB_OUT/swapped/data" bs=64k count=$((SWAPPED_MIB * 16))
} 2>> "$WB_OUT/tasks.err"

test_swap() {
	local policy from to
	if ! cgroups_enable memory; then
		skip_test "swap: swap is as fast as by requests" "needs the memory controller of cgroup v2"
		return
	fi
	cgroup_create swap "${SWAP_MEMORY_MIB}M" || die "cannot make a cgroup"
	mkdir "$WB_OUT/swapped" || die "cannot make a directory"
	on_exit umount_fs "$WB_OUT/swapped"
	on_exit swap_off "$DISK_DEV"
	for policy in requests bytes; do
		unheld_disk "$policy" "$LATENCY_NS"
		# Each page is a write.
		if ! queue_set nomerges 2 || ! mkswap "$DISK_DEV" > /dev/null ||
		   ! swapon "$DISK_DEV"; then
			die "cannot swap to $DISK_DEV"
		fi
		mount -t tmpfs tmpfs "$WB_OUT/swapped" || die "cannot mount a tmpfs"
		now_us from
		swap_out
		now_us to
		TOOK[$policy]=$((to - from))
		note "of swap there were $(wbdisk_stat test writes) writes"
		umount_fs "$WB_OUT/swapped"
		swap_off "$DISK_DEV"
		wbdisk_destroy test
	done
	note "swap: ${TOOK[requests]} us by requests, ${TOOK[bytes]} us by bytes"
	as_fast swap "swap-outs"
}

# ---- main ------------------------------------------------------------------

wb_begin
need_wbdisk
disk_raw fifo
need_policy
wbdisk_destroy test
ktap_set_plan 6
test_discards
test_swap
check_dmesg
ktap_finished
