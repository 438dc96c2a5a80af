#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The time limit of dirty data, max_drain_ms of a device, where many write to it:
#	folios	writers that dirty a large folio at a time: how much is dirty, how long does
#		sync take?  And how long is a task held that is new and writes little beside them?
#	owner	one cgroup overwrites what another one's file has in the cache
#	short	a writer beside cgroups that write a little and end, on a disk whose speed
#		does not change

# "$!" is no array, whatever was sourced before.
# shellcheck disable=SC2128

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"
# shellcheck source=../lib/tracefs.sh
. "$WB_DIR/lib/tracefs.sh"

readonly MIB=1048576
readonly FLOOR=$((12 * MIB))	# DRAIN_FLOOR of mm/page-writeback.c

# At twice the limit nobody may dirty more, but what a writer has begun: a folio of a
# write of 1 MiB.
readonly FOLIOS_MBPS=10 FOLIOS_MS=3000 FOLIOS_S=30
# A pause, and until twice as much is clean as so many would dirty: 0.5 s.
readonly LIGHT_KIB=256 LIGHT_COUNT=15 LIGHT_MS=1000
readonly OWNER_MBPS=10 OWNER_MS=1000 OWNER_MIB=512 OWNER_S=20 OWNER_PAUSE_S=.5
# Two fifths of what the disk writes, by cgroups that end.
readonly SHORT_MBPS=200 SHORT_MS=3000 SHORT_MIB=4 SHORT_PAUSE_S=.05 SHORT_S=40 SHORT_SHARE=0.75

about title "time limit of dirty data: large folios, files of another cgroup, cgroups that end"
about replays "none: tests max_drain_ms; skips without it"
about wall 60
about memory 4608
about programs awk dd
about kernel CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK
about series
case_parts folios owner short
axis fs xfs 'xfs|ext4' "file system of the disk"
axis writers 16 '1..256' "that write at once"
measures folios_max_dirty bytes lower "most dirty memory while they write"
measures folios_sync_s s lower "sync after they are stopped"
measures folios_light_ms ms lower \
	"longest time that a task that is new slept for the limit to write a little beside them"
measures folios_light_all_ms ms - "longest time that it took, file system and all"
measures owner_max_dirty bytes lower "most dirty memory while another cgroup's file is overwritten"
measures 'short_limit_alone, short_limit_beside' bytes higher \
	"what the limit comes to, without and beside cgroups that end"
case_parse "$@"
OPT[disk]=fifo OPT[disk-set]="" OPT[dir]=""

# limited_disk(name, MB/s, ms) - the disk from here on
limited_disk() {
	disk_beside "${OPT[fs]}" "$1" fifo "link_mbps=$2"
	DISK_NAME=wbd-$1 MNT=/mnt/$1
	bdi_set max_drain_ms "$3" || die "cannot set max_drain_ms"
}

# watch_dirty(s) - PEAK of dirty memory, LIMIT at its highest
watch_dirty() {
	local i dirty limit
	PEAK=0 LIMIT=0
	for ((i = 0; i < 5 * $1; i++)); do
		sleep .2
		dirty=$(dirty_bytes)
		limit=$(bdi_get max_drain_bytes)
		((dirty <= PEAK)) || PEAK=$dirty
		((limit <= LIMIT)) || LIMIT=$limit
	done
	note "$((PEAK / MIB)) MiB dirty, limit $((LIMIT / MIB)) MiB"
}

# until_stopped(s, cmd...) - again and again, with so long a pause
until_stopped() {
	local pause=$1
	shift
	rm -f "$STOP"
	until [ -e "$STOP" ]; do
		"$@"
		sleep "$pause"
	done
}

# ---- folios ----------------------------------------------------------------

# The file system may have it wait, too, for its journal or an inode that is being
# written: so what is judged is how long it sleeps in balance_dirty_pages().
light_ones() {
	local i start end
	for ((i = 0; i < LIGHT_COUNT; i++)); do
		sleep 1
		now_us start
		"$LIGHT" if=/dev/zero of="$MNT/light" bs=${LIGHT_KIB}k count=1 conv=notrunc status=none
		now_us end
		echo "$(((end - start) / 1000))"
	done
}

# light_slept(trace) - ms that the one slept that slept longest
light_slept() {
	awk '!/^#/ {
		pid = $1; sub(/.*-/, "", pid)
		for (i = 2; i <= NF; i++)
			if (sub(/^pause=/, "", $i)) {
				slept[pid] += $i
				if (slept[pid] > most)
					most = slept[pid]
			}
	}
	END { print most + 0 }' "$1/trace"
}

test_folios() {
	local i writers=() all light start end trace=$TRACING/instances/crowd
	limited_disk folios "$FOLIOS_MBPS" "$FOLIOS_MS"
	for ((i = 0; i < OPT[writers]; i++)); do
		dd if=/dev/zero of="$MNT/file$i" bs=1M count=4096 status=none &
		writers+=("$!")
	done
	watch_dirty "$FOLIOS_S"
	echo > "$trace/trace"
	all=$(light_ones | sort -n | tail -1)
	light=$(light_slept "$trace")
	stop_tasks "${writers[@]}"
	now_us start
	sync -f "$MNT"
	now_us end
	metric folios_max_dirty "$PEAK"
	metric folios_sync_s "$(calc "($end - $start) / 1e6")"
	metric folios_light_ms "$light"
	metric folios_light_all_ms "$all"
	check "folios: dirty memory stays near twice the limit" \
		[ "$PEAK" -le $((2 * LIMIT + OPT[writers] * MIB)) ]
	check "folios: what they leave is written in twice the time" \
		holds "($end - $start) / 1e3 <= 2 * $FOLIOS_MS"
	check "folios: a task that writes little beside them is not held for long" \
		[ "$light" -le "$LIGHT_MS" ]
	wbdisk_set folios link_mbps 1000
	disk_drop folios
}

# ---- owner -----------------------------------------------------------------

overwrite() {
	dd if=/dev/zero of="$MNT/file" bs=1M count="$OWNER_MIB" conv=notrunc status=none
}

test_owner() {
	local writer
	limited_disk owner 500 0
	cgroup_create owner
	cgroup_create other
	cgroup_run owner dd if=/dev/zero of="$MNT/file" bs=1M count="$OWNER_MIB" conv=fsync status=none
	wbdisk_set owner link_mbps "$OWNER_MBPS"
	bdi_set max_drain_ms "$OWNER_MS"
	cgroup_run other until_stopped "$OWNER_PAUSE_S" overwrite &
	writer=$!
	watch_dirty "$OWNER_S"
	touch "$STOP"
	wbdisk_set owner link_mbps 1000
	wait "$writer"
	metric owner_max_dirty "$PEAK"
	check "owner: who overwrites another cgroup's file is held to the limit, too" \
		[ "$PEAK" -le $((2 * FLOOR)) ]
	disk_drop owner
}

# ---- short -----------------------------------------------------------------

# short_one() - a cgroup that writes and ends
short_one() {
	SHORT_NR=$((SHORT_NR + 1))
	cgroup_create "short$SHORT_NR"
	cgroup_run "short$SHORT_NR" dd if=/dev/zero of="$MNT/short$SHORT_NR" bs=1M count="$SHORT_MIB" status=none
	rmdir "$CGROUP"
}

test_short() {
	local heavy loop alone beside
	limited_disk short "$SHORT_MBPS" "$SHORT_MS"
	cgroup_create heavy
	cgroup_exec heavy dd if=/dev/zero of="$MNT/heavy" bs=1M count=100000 status=none &
	heavy=$!
	watch_dirty "$SHORT_S"
	alone=$(bdi_get max_drain_bytes)
	SHORT_NR=0
	until_stopped "$SHORT_PAUSE_S" short_one &
	loop=$!
	watch_dirty "$SHORT_S"
	beside=$(bdi_get max_drain_bytes)
	note "cgroups: $(grep -c . <(ls "$MNT")) files; limit $alone bytes, $beside beside them"
	touch "$STOP"
	stop_tasks "$heavy"
	wbdisk_set short link_mbps 1000
	wait "$loop"
	metric short_limit_alone "$alone"
	metric short_limit_beside "$beside"
	check "short: the limit is what the disk writes, whoever ends" \
		holds "$beside >= $SHORT_SHARE * $SHORT_MBPS * 1e3 * $SHORT_MS"
	disk_drop short
}

declare -A RESULTS=([folios]=3 [owner]=1 [short]=1)
STOP=$(mktemp -u)
wb_begin
need_wbdisk
cgroups_check
# dd under a name of its own, for the trace.
LIGHT=$(mktemp -u /tmp/light.XXXXXX)
on_exit rm -f "$LIGHT"
cp "$(command -v dd)" "$LIGHT"
if ! trace_instance crowd 512 || ! trace_event "$TRACING/instances/crowd" \
	writeback/balance_dirty_pages "comm == \"${LIGHT##*/}\""; then
	skip_all "needs the trace event writeback/balance_dirty_pages in $TRACING"
fi
wbdisk_create probe fifo || die "cannot make the disk probe"
[ -e "$(bdi_dir wbd-probe)/max_drain_ms" ] || skip_all "no max_drain_ms"
wbdisk_destroy probe
set_limits ratio 20 40
on_exit rm -f "$STOP"
run_parts
