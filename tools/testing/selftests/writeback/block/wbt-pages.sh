#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Throttling by bytes (wbt_policy) and the page cache of a disk without a file system,
# which sends a bio for each page.  Those that go on are held as one write, as long as
# a request shall be.  Two of these may go at once, and shall not become one request:
# nothing else could go beside it, so the disk would be idle after each, and be given
# more for that, at the readers' cost.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/wbt.sh
. "$WB_DIR/lib/wbt.sh"
# shellcheck source=../lib/fio.sh
. "$WB_DIR/lib/fio.sh"

readonly MIB=1048576
# 64 KiB, as long as a request then shall be, take 0.66 ms.
readonly LINK_MBPS=100 FILE_MIB=200 READ_IOPS=100 READ_S=1.4 WARM_S=.5
# By requests it is 0.1 s.  Two requests, what is lost while the least latency is
# looked for, and twice that.
readonly READ_MS=6
readonly LONGER=1.03	# times as by requests

about title "throttling by bytes: pages written to a disk without a file system, beside reads"
about replays "none: tests wbt_policy=bytes; skips on a kernel without it"
about wall 30
about programs dd awk jq
about kernel BLK_WBT BLK_WBT_MQ
about series
measures pages_read_X us lower "99th percentile of 100 reads a second beside dd to the disk, by this policy"
measures pages_mean bytes - "mean length of a write by bytes"
measures pages_drain ratio lower "time of dd and fsync by bytes over that by requests"
case_parse "$@"

declare -A P99 TOOK MEAN

# load(policy) - dd of pages beside reads
load() {
	local from to writes reader
	local -A v=()
	disk_raw fifo link_mbps="$LINK_MBPS"
	if ! queue_set scheduler none || ! queue_set wbt_policy "$1"; then
		die "cannot set up the disk"
	fi
	set_dirty background_bytes $((4 * MIB))
	"$WB_DIR/open_reader" "$DISK_DEV" "$READ_IOPS" "$READ_S" "$((OPT[seed] + 1))" \
		> "$WB_OUT/$1.json" 2>> "$WB_OUT/tasks.err" &
	reader=$!
	sleep "$WARM_S"
	writes=$(wbdisk_stat test writes)
	now_us from
	dd if=/dev/zero of="$DISK_DEV" bs=1M count="$FILE_MIB" conv=notrunc,fsync status=none ||
		note "dd failed"
	now_us to
	writes=$(($(wbdisk_stat test writes) - writes))
	wait "$reader"
	fio_values "$WB_OUT/$1.json" v
	P99[$1]=${v[p99]:-0} TOOK[$1]=$((to - from)) MEAN[$1]=$((FILE_MIB * MIB / (writes > 0 ? writes : 1)))
	note "$1: ${v[ios]:-0} reads, p50 ${v[p50]:-0} us, p99 ${v[p99]:-0}; ${TOOK[$1]} us, $writes writes"
	metric "pages_read_$1" "${P99[$1]}"
	wbdisk_destroy test
}

wb_begin
need_wbdisk
disk_raw fifo
need_policy
wbdisk_destroy test
ktap_set_plan 4
load requests
load bytes
metric pages_mean "${MEAN[bytes]}"
metric pages_drain "$(calc "${TOOK[bytes]} / ${TOOK[requests]}")"
check "by requests reads wait for more than twice as long" \
	holds "${P99[requests]} > 2 * $READ_MS * 1000"
check "99 of 100 reads wait for $READ_MS ms at most" \
	holds "${P99[bytes]} > 0 && ${P99[bytes]} <= $READ_MS * 1000"
check "the disk is as busy as by requests" holds "${TOOK[bytes]} <= $LONGER * ${TOOK[requests]}"
check_dmesg
ktap_finished
