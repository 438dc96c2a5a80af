#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The time limit of dirty data where per-CPU counters are off: pages of a cgroup
# that were dirtied by one CPU and cleaned by others, each less than what a CPU adds
# to the counter at a time, still look dirty.  Of one cgroup that is nothing; of
# many it is more than the limit, and a writer beside them would be held on account
# of nothing: whether they have long been idle, or have a page dirty each.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

readonly MIB=1048576 CPUS=4
# WB_STAT_BATCH of include/linux/backing-dev.h, with so many CPUs.
readonly BATCH=24
readonly PART=$((BATCH - 1))	# pages that a CPU keeps for itself
readonly FLOOR=$((12 * MIB))	# DRAIN_FLOOR of mm/page-writeback.c
readonly DISK_MBPS=200 LIMIT_MS=50
# Below half of the limit, where nobody is held.
readonly WRITE_MIB=6
readonly STALL_MS=10000

about title "time limit of dirty data: cgroups whose per-CPU counters are off"
about replays "none: tests max_drain_ms; skips without it"
about wall 60
about cpus "$CPUS"
about programs awk dd sync taskset
about kernel CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK
about series
about not_fast "which has one CPU"
axis cgroups 300 '1..2000' "whose counters are off"
measures counters_off_bytes bytes - "what they still seem to have dirty"
measures 'throttled, busy_throttled' count lower \
	"sleeps of a writer of 6 MiB beside them, while they have nothing dirty, or a page each"
case_parse "$@"
OPT[disk]=fifo OPT[disk-set]="" OPT[dir]=""

# parts(n) - a file of PART pages by each of n cgroups and for each CPU that is to
#	write it; by this process, on CPU 0
parts() {
	local i cpu data
	taskset -pc 0 "$BASHPID" > /dev/null || return
	printf -v data '%*s' $((PART * PAGE)) ''
	for ((i = 0; i < $1; i++)); do
		echo "$BASHPID" > "$CGROUPS/wb-idle$i/cgroup.procs" || return
		for ((cpu = 1; cpu < CPUS; cpu++)); do
			printf %s "$data" > "$MNT/cpu$cpu-$i" || return
		done
	done
}

# page_each() - of each cgroup one dirty page
page_each() {
	local i
	for ((i = 0; i < OPT[cgroups]; i++)); do
		cgroup_run "idle$i" dd if=/dev/zero of="$MNT/cpu1-$i" bs="$PAGE" count=1 \
			conv=notrunc status=none || return
	done
}

# write_beside(metric) - a writer of WRITE_MIB, how often it sleeps
write_beside() {
	local before
	before=$(bdi_get nr_dirty_throttled)
	dd if=/dev/zero of="$MNT/$1" bs=64k count=$((WRITE_MIB * 16)) status=none
	THROTTLED=$(($(bdi_get nr_dirty_throttled) - before))
	metric "$1" "$THROTTLED"
}

# seems_dirty() - bytes, by the counters of all cgroups
seems_dirty() {
	bdi_debug stats | awk '$1 == "BdiReclaimable:" || $1 == "BdiWriteback:" { kb += $2 }
		END { printf "%.0f", kb * 1024 }'
}

wb_begin
[ "$NCPU" -ge "$CPUS" ] || skip_all "needs $CPUS CPUs"
need_wbdisk
cgroups_check
ktap_set_plan 5
disk_beside xfs idle fifo link_mbps=$DISK_MBPS
DISK_NAME=wbd-idle MNT=/mnt/idle
[ -e "$(bdi_dir)/max_drain_ms" ] || skip_all "no max_drain_ms"
# The flusher, on whatever CPU, is to leave the pages to the others.
set_dirty writeback_centisecs 0
for ((i = 0; i < OPT[cgroups]; i++)); do
	cgroup_create "idle$i"
done
(parts "${OPT[cgroups]}") || die "cannot write the files of the idle cgroups"
for ((cpu = 1; cpu < CPUS; cpu++)); do
	taskset -c "$cpu" sync "$MNT/cpu$cpu"-* || die "sync on CPU $cpu failed"
done
# Inodes stay on the flusher's list until it has seen that they have no dirty page.
sync -f "$MNT"
off=$(seems_dirty)
left=$(dirty_bytes)
metric counters_off_bytes "$off"
note "seem dirty $off, are dirty $left"
check "nothing is dirty" holds "$left < $MIB"
if ((off > FLOOR)); then
	ktap_test_pass "it seems to be more than the limit"
else
	skip_test "it seems to be more than the limit" "only $off bytes"
fi

bdi_set max_drain_ms "$LIMIT_MS" || die "cannot set max_drain_ms"
write_beside throttled
check "a writer beside them is not held" [ "$THROTTLED" -eq 0 ]
sync -f "$MNT"
# Else the flusher would have written the pages before the writer comes.
wbdisk_set idle stall_ms "$STALL_MS"
page_each || die "cannot write a page of each cgroup"
write_beside busy_throttled
wbdisk_set idle stall_ms 0
check "nor while each has a dirty page" [ "$THROTTLED" -eq 0 ]
disk_drop idle
check_dmesg
ktap_finished
