#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the time limit of dirty data costs in CPU time: buffered writes to a null_blk that
# completes at once.  The CPU is always busy, so the time that passes is CPU time.
#	free	far below all limits, where a writer looks once in a while that it is
#	near	where all that is written is three times the limit of dirty memory, so that it
#		is throttled
# Each with max_drain_ms and without; two kernels are compared by the latter.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"
readonly COST_DISK=wb-dirty
# shellcheck source=../lib/cost.sh
. "$WB_DIR/lib/cost.sh"

readonly MIB=1048576
readonly WRITE_MIB=192 LIMIT_MS=1000
# Of what is written, all below the ceiling of freerun, and 3 times the limit.
readonly FREE_MIB=1024 NEAR_MIB=64
readonly SETTLE=.3	# seconds
readonly ROUNDS=5	# in turn, so that no setting is always the first
readonly MAX_IDLE_PCT=1
readonly MAX_COST_PCT=0.5

about title "CPU time per page written on a null_blk, with a time limit of dirty data and without"
about replays "none: what the time limit costs"
about wall 60
about programs dd awk
about memory 4096
about kernel BLK_DEV_NULL_BLK
about not_fast "where computing costs nothing"
about series
measures cpu_idle percent - "share of CPU time that was idle, at most"
measures cost_X_ns_L ns lower \
	"CPU time per page written and synced; X: free or near, L: time limit on or off"
case_parse "$@"
DISK_NAME=$COST_DISK

declare -A COST		# ns of each round, by where and label
IDLE_MAX=0

# measure(free|near, label) - one round
measure() {
	local mib=$FREE_MIB before after
	[ "$1" = free ] || mib=$NEAR_MIB
	set_limits bytes $((mib * MIB / 2)) $((mib * MIB))
	if [ -n "$HAS_LIMIT" ]; then
		bdi_set max_drain_ms "$([ "$2" = off ] && echo 0 || echo "$LIMIT_MS")" || die "cannot set max_drain_ms"
	fi
	sync
	echo 1 > "$VM/drop_caches"
	sleep "$SETTLE"
	cpu_snapshot before
	dd if=/dev/zero of="/dev/$DISK_NAME" bs=1M count="$WRITE_MIB" conv=fsync 2> "$WB_OUT/dd.log" ||
		die "dd: $(tail -n 1 "$WB_OUT/dd.log")"
	cpu_snapshot after
	IDLE_MAX=$(calc "$(cpu_idle_pct "$before" "$after") > $IDLE_MAX ? $(cpu_idle_pct "$before" "$after") : $IDLE_MAX")
	COST[$1_$2]+=" $(ns_per_block "$WB_OUT/dd.log" "$PAGE")"
}

wb_begin
[ -d "${NULLB%/*}" ] || skip_all "needs null_blk with configfs (CONFIG_BLK_DEV_NULL_BLK)"
nullb_create "$PAGE" || skip_all "cannot make a null_blk in ${NULLB%/*}"
# What that costs is wbt-cost's.
[ ! -e "/sys/block/$DISK_NAME/queue/wbt_lat_usec" ] || echo 0 > "/sys/block/$DISK_NAME/queue/wbt_lat_usec"
HAS_LIMIT=
labels=(off)
if [ -e "$(bdi_dir)/max_drain_ms" ]; then
	HAS_LIMIT=1
	labels+=(on)
fi
[ "$NCPU" -eq 1 ] || skip_all "needs one CPU, which is busy"
ktap_set_plan 4
for where in free near; do
	measure "$where" off	# warms up
	COST[${where}_off]=
	for ((i = 0; i < ROUNDS; i++)); do
		for label in "${labels[@]}"; do
			measure "$where" "$label"
		done
	done
	for label in "${labels[@]}"; do
		note "$where, $label:${COST[${where}_$label]}"
		metric "cost_${where}_ns_$label" "$(median "${COST[${where}_$label]}")"
	done
done
metric cpu_idle "$IDLE_MAX"
check "the CPU was busy all the time" holds "$IDLE_MAX <= $MAX_IDLE_PCT"
for where in free near; do
	if [ -z "$HAS_LIMIT" ]; then
		skip_test "$where: a page costs at most $MAX_COST_PCT % more" "no max_drain_ms"
		continue
	fi
	check "$where: a page costs at most $MAX_COST_PCT % more" \
		holds "$(median "${COST[${where}_on]}") <= $(median "${COST[${where}_off]}") * (1 + $MAX_COST_PCT / 100)"
done
check_dmesg
ktap_finished
