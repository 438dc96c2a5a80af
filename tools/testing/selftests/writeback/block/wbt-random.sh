#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Writeback of single pages all over a file, while nobody reads, by each policy of
# throttling (wbt_policy) and on any kernel:
#	fsync	in one go, by who waits for them
#	flush	as the flusher does, and then waited for
# on a disk with many tags, where as many as stock has in flight are what the disk's
# latency lets through, and on one with a single tag, which is to be busy all the time.
# No two pages are beside each other, so nearly each is a write of its own.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/wbt.sh
. "$WB_DIR/lib/wbt.sh"

readonly PAGE_KIB=4 FILE_MIB=1024
readonly LINK_MBPS=450 LATENCY_NS=1000000
readonly -A PAGES=([1023]=8192 [1]=2048)	# by number of tags
# What stock (6.12) needs where computing takes no time, and the speed that is as fast.
readonly -A STOCK_MS=([fsync_1023]=316 [flush_1023]=314 [fsync_1]=2070 [flush_1]=2070)
readonly SPEED=.99
# Some pages are on the disk before the time is taken: 1 % were seen.
readonly WRITES_PCT=95

about title "writeback of single pages at random while nobody reads is as fast as stock's, by each policy"
about replays "none: the number of writes in flight where only that limits their rate"
about wall 40
about programs awk xfs_io mkfs.xfs fallocate
about kernel BLK_WBT BLK_WBT_MQ
measures random_ms_X ms lower \
	"time to write single pages: by policy; fsync, or flush and fsync; tags (1023: 32 MiB, 1: 8 MiB)"
case_parse "$@"
OPT+=([disk]=fifo [stack]=none [dir]="" [disk-set]="")

# pages(tags) - commands of xfs_io that make them dirty: one page somewhere in each of
# equal parts of the file, and never the last one of it
pages() {
	awk -v seed="${OPT[seed]}" -v n="${PAGES[$1]}" -v kib="$PAGE_KIB" -v mib="$FILE_MIB" 'BEGIN {
		srand(seed)
		part = mib * 1024 / kib / n
		for (i = 0; i < n; i++)
			printf "pwrite -q %dk %dk\n", (i * part + int(rand() * (part - 1))) * kib, kib
	}'
}

declare -A TOOK	# us

# random(tags, how, policy) - time to write them
random() {
	local from to how=(-c fsync) writes
	disk_setup xfs "" link_mbps="$LINK_MBPS" latency_ns="$LATENCY_NS" queue_depth="$1"
	queue_set scheduler none || die "cannot set the scheduler"
	[ -z "$policies" ] || queue_set wbt_policy "$3" || die "cannot set the policy"
	if ! fallocate -l "${FILE_MIB}m" "$MNT/file" || ! sync -f "$MNT"; then
		die "cannot make a file"
	fi
	pages "$1" | xfs_io "$MNT/file" > /dev/null || die "cannot write"
	[ "$2" = fsync ] || how=(-c "sync_range -w 0 ${FILE_MIB}m" "${how[@]}")
	writes=$(wbdisk_stat test writes)
	now_us from
	xfs_io "${how[@]}" "$MNT/file" || die "cannot sync"
	now_us to
	TOOK[$3]=$((to - from)) writes=$(($(wbdisk_stat test writes) - writes))
	note "$1 tags, $2, $3: ${TOOK[$3]} us, $writes writes"
	((writes * 100 >= PAGES[$1] * WRITES_PCT)) || die "only $writes writes"
	metric "random_ms_$3_$2_$1" "$(calc "${TOOK[$3]} / 1e3")"
	disk_teardown
}

# as_stock(tags, how, policy)
as_stock() {
	local title="$2, $1 tags: as fast as stock by $3"
	if grep -q "User Mode Linux" /proc/cpuinfo; then
		check "$title" holds "${TOOK[$3]} / 1e3 <= ${STOCK_MS[$2_$1]} / $SPEED"
	else
		skip_test "$title" "computing takes time: compared in the fast lane"
	fi
}

# test_random(tags, how)
test_random() {
	local policy
	for policy in requests bytes; do
		if [ "$policy" = bytes ] && [ -z "$policies" ]; then
			skip_test "$2, $1 tags: as fast as stock by $policy" "no wbt_policy"
			skip_test "$2, $1 tags: by bytes as fast as by requests" "no wbt_policy"
			return
		fi
		random "$1" "$2" "$policy"
		as_stock "$1" "$2" "$policy"
	done
	check "$2, $1 tags: by bytes as fast as by requests" \
		holds "${TOOK[bytes]} * $SPEED <= ${TOOK[requests]}"
}

# ---- main ------------------------------------------------------------------

wb_begin
need_wbdisk
disk_raw fifo
policies=
[ ! -e "/sys/block/$DISK_NAME/queue/wbt_policy" ] || policies=1
[ -e "/sys/block/$DISK_NAME/queue/wbt_lat_usec" ] || skip_all "needs CONFIG_BLK_WBT_MQ"
wbdisk_destroy test
# The flusher stays out of it: the pages are written when all of them are dirty.
set_dirty background_ratio 50
set_dirty ratio 60
set_dirty writeback_centisecs 0
ktap_set_plan 13
for tags in 1023 1; do
	test_random "$tags" fsync
	test_random "$tags" flush
done
check_dmesg
ktap_finished
