#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What throttling of writeback costs in CPU time, where there is nothing to throttle:
# 4-KiB O_DIRECT reads, and buffered writes with their writeback, on a null_blk that
# completes at once.  The CPU is always busy, so the time that passes is CPU time.
# Who read a moment ago still reads for the throttling, and so does who waits for small
# writes: pages are written and synced right after the reads, and once more, by nobody
# who waits, when reads are forgotten.
#
# Each is measured with writeback throttling as the kernel sets it and without it
# (wbt_lat_usec 0), and where there is a choice, with each policy.  Two kernels are
# compared by the values of the first.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
readonly COST_DISK=wb-cost
# shellcheck source=../lib/cost.sh
. "$WB_DIR/lib/cost.sh"

readonly BLOCK_KIB=4 READS=100000 WRITE_MIB=192
# After a change of settings, for what it leaves to RCU and workers.
readonly SETTLE=.3	# seconds
readonly FORGET=5.5	# for reads to be forgotten; five seconds in the series
readonly ROUNDS=3	# in turn, so that no setting is always the first
readonly MAX_IDLE_PCT=1
# The most that counting may cost, against no throttling at all: a guard, not what is
# expected.
readonly MAX_COST_PCT=5
# Pages that are synced, or written beside reads, may be held, each a bio that is looked
# at twice: what that costs does not depend on what else a page costs.
readonly MAX_HELD_NS=300

about title \
	"CPU time per O_DIRECT read and per page written on a null_blk, with throttling, without, and by policy"
about replays "none: what counting costs where there is nothing to throttle"
about programs dd awk xfs_io
about kernel BLK_DEV_NULL_BLK BLK_WBT BLK_WBT_MQ MQ_IOSCHED_DEADLINE MQ_IOSCHED_KYBER
about not_fast "where computing costs nothing"
axis sched none 'none|mq-deadline|kyber' "I/O scheduler of the disk"
measures cpu_idle percent - "share of CPU time that was idle, at most"
measures 'cost_read_ns_X, cost_write_ns_X' ns lower \
	"CPU time per 4-KiB O_DIRECT read, per page written; X: default, off, or the policy"
measures cost_synced_ns_X ns lower "the same per page written right after reads, and synced"
case_parse "$@"

queue_file() {
	echo "/sys/block/$COST_DISK/queue/$1"
}

# throttle(setting) - default, off, or a policy
throttle() {
	local us=-1
	[ "$1" != off ] || us=0
	echo "$us" > "$(queue_file wbt_lat_usec)"
	case $1 in
	requests | bytes) echo "$1" > "$(queue_file wbt_policy)" ;;
	esac
}

declare -A READ WRITE SYNCED	# ns of each round
IDLE_MAX=0	# most idle time while one was measured, percent

# busy(command...) - its exit code; IDLE_MAX is the most idle time of any
busy() {
	local before after idle ret
	cpu_snapshot before
	"$@"
	ret=$?
	cpu_snapshot after
	idle=$(cpu_idle_pct "$before" "$after")
	IDLE_MAX=$(calc "$idle > $IDLE_MAX ? $idle : $IDLE_MAX")
	return "$ret"
}

# timed_dd(options...) - its log is WB_OUT/dd.log
timed_dd() {
	busy dd "$@" 2> "$WB_OUT/dd.log" || die "dd $*: $(tail -n 1 "$WB_OUT/dd.log")"
}

# write_flushed() - pages that are sent off as the flusher does; the last one to close a
# disk would sync it.  FLUSHED_NS is the time per page
write_flushed() {
	local start end opened
	exec {opened}<> "/dev/$COST_DISK"
	now_us start
	dd if=/dev/zero of="/dev/$COST_DISK" bs=1M count="$WRITE_MIB" status=none || die "cannot write"
	xfs_io -c "sync_range -w 0 ${WRITE_MIB}m" "/dev/$COST_DISK" || die "sync_range"
	now_us end
	FLUSHED_NS=$(calc "($end - $start) * 1000 / ($WRITE_MIB * 1024 / $BLOCK_KIB)")
	sync
	exec {opened}>&-
}

# measure(setting) - one round
measure() {
	throttle "$1" || die "cannot set throttling to $1"
	echo 1 > "$VM/drop_caches"
	sleep "$SETTLE"
	timed_dd if="/dev/$COST_DISK" of=/dev/null bs="${BLOCK_KIB}k" count="$READS" iflag=direct
	READ[$1]+=" $(ns_per_block "$WB_OUT/dd.log" $((BLOCK_KIB * 1024)))"
	timed_dd if=/dev/zero of="/dev/$COST_DISK" bs=1M count="$WRITE_MIB" conv=fsync
	SYNCED[$1]+=" $(ns_per_block "$WB_OUT/dd.log" $((BLOCK_KIB * 1024)))"
	sleep "$FORGET"
	busy write_flushed
	WRITE[$1]+=" $FLUSHED_NS"
}

# ---- main ------------------------------------------------------------------

wb_begin
[ -d "${NULLB%/*}" ] || skip_all "needs null_blk with configfs (CONFIG_BLK_DEV_NULL_BLK)"
nullb_create $((BLOCK_KIB * 1024)) || skip_all "cannot make a null_blk in ${NULLB%/*}"
echo "${OPT[sched]}" 2> /dev/null > "$(queue_file scheduler)" || skip_all "has no scheduler ${OPT[sched]}"
{ echo -1 > "$(queue_file wbt_lat_usec)"; } 2> /dev/null || skip_all "needs CONFIG_BLK_WBT"
settings=(default off)
policy=
if [ -e "$(queue_file wbt_policy)" ]; then
	policy=$(value_of "$(queue_file wbt_policy)")
	settings+=(requests)
fi

ktap_set_plan 5
measure default	# warms up
READ=() WRITE=() SYNCED=() IDLE_MAX=0
for ((i = 0; i < ROUNDS; i++)); do
	for setting in "${settings[@]}"; do
		measure "$setting"
		[ -z "$policy" ] || throttle "$policy"
	done
done
metric cpu_idle "$IDLE_MAX"
check "the CPU was busy all the time" holds "$IDLE_MAX <= $MAX_IDLE_PCT"
for setting in "${settings[@]}"; do
	metric "cost_read_ns_$setting" "$(median "${READ[$setting]}")"
	metric "cost_write_ns_$setting" "$(median "${WRITE[$setting]}")"
	metric "cost_synced_ns_$setting" "$(median "${SYNCED[$setting]}")"
done
check "a direct read costs at most $MAX_COST_PCT % more than without throttling" \
	holds "$(median "${READ[default]}") <= $(median "${READ[off]}") * (1 + $MAX_COST_PCT / 100)"
check "so does a page written" \
	holds "$(median "${WRITE[default]}") <= $(median "${WRITE[off]}") * (1 + $MAX_COST_PCT / 100)"
check "a page synced costs at most $MAX_HELD_NS ns more" \
	holds "$(median "${SYNCED[default]}") <= $(median "${SYNCED[off]}") + $MAX_HELD_NS"
check_dmesg
ktap_finished
