#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A long time of changing load: bursts, small files, overwrites, removals, cgroups
# and disks that come and go, settings that change, and idle time in between.  At
# regular moments everything is synced and the caches are dropped; what is then in
# use may not grow.
#
# The first eighth warms up.  Of the rest, the mean of the last quarter is compared
# with that of the first one.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

readonly SHORT_S=480 SAMPLES=48
# The short version moved by -0.2 MiB, 66 and 31 KiB, that of 4 h on the debug kernel by
# 1.0 MiB, 740 and 214 KiB (patched, seed 1): what the modelled disks keep grows.  A page
# lost per second would be 56 MiB in 4 h, an object of 192 bytes per operation 260 KiB.
readonly MEMORY_KIB=8192 SLAB_KIB=1024 CACHE_KIB=256
readonly FILES=8

about title "a long time of changing load, disks and cgroups: memory, slab and counters stay flat"
about replays "none: looks for leaks"
about programs awk dd
about kernel CGROUPS MEMCG BLK_CGROUP CGROUP_WRITEBACK
about series
axis hours 0 '0..99 h' "how long, in guest time; 0: 480 s" wall=40
measures soak_s s - "guest time"
measures soak_operations count - "operations of the load in it"
measures 'soak_memory_kib, soak_slab_kib, soak_percpu_kib, soak_cache_kib' KiB lower \
	"growth of memory in use, SUnreclaim, Percpu, the slab cache that grew most"
case_parse "$@"

# sample(seconds so far) - after a sync, without caches: lines "name value" in KiB, or
# counts for nr_*
sample() {
	local i stored=0
	sync
	for i in 1 2 3; do
		echo 3 > $VM/drop_caches
		sleep .5
	done
	# KASAN keeps what was freed, and a cache what it may need again.
	for i in /sys/kernel/slab/*/shrink; do
		[ ! -w "$i" ] || echo 1 > "$i"
	done
	for i in "${DIRS[@]}"; do
		stored=$((stored + $(wbdisk_stat "$i" stored_bytes) / 1024))
	done
	{
		# Apart from what the modelled disks keep, journals above all, until they are full.
		awk -v stored=$stored '
			{ sub(/:/, "", $1); v[$1] = $2 }
			END { print "memory", -v["MemAvailable"] - stored
			      print "slab", v["SUnreclaim"]
			      print "percpu", v["Percpu"] }' /proc/meminfo
		awk '$1 ~ /^nr_(dirty|writeback)$/' /proc/vmstat
		# Objects that no one frees stay active.  The debug kernel's own stand for others.
		awk 'NR > 2 && $1 !~ /^(kmemleak_|debug_)object/ { print "cache." $1, $2 * $4 / 1024 }' /proc/slabinfo
	} | sed "s/^/$1 /" >> "$WB_OUT/samples"
}

# grown(name or regex) - "KiB name" for what matches, those that grew most first: the
# mean of the last quarter above that of the first
grown() {
	awk -v name="^($1)\$" -v from="$WARM" -v to="$TOTAL" '
		$2 ~ name && $1 >= from {
			if ($1 < from + (to - from) / 4) { a[$2] += $3; na[$2]++ }
			else if ($1 >= to - (to - from) / 4) { b[$2] += $3; nb[$2]++ }
		}
		END { for (c in b) if (na[c]) printf "%.1f %s\n", b[c] / nb[c] - a[c] / na[c], c }' "$WB_OUT/samples" |
		sort -rn
}

# put(file, values...) - one of them, if there is such a file
put() {
	local file=$1
	shift $((1 + RANDOM % ($# - 1)))
	[ ! -e "$file" ] || { echo "$1" > "$file"; } 2> /dev/null
}

# operation() - one of the load's; 1 if it fails
operation() {
	local dir=/mnt/${DIRS[RANDOM % 2]} file i
	local queue=/sys/block/wbd-${dir##*/}/queue bdi=/sys/block/wbd-${dir##*/}/bdi
	file=$dir/file$((RANDOM % FILES))
	OP=$((RANDOM % 12)) N=$((N + 1))
	case $OP in
	0|1) dd if=/dev/zero of="$file" bs=256k count=$((RANDOM % 32 + 1)) conv=notrunc status=none ;;
	2) dd if=/dev/zero of="$file" bs=16k count=$((RANDOM % 64 + 1)) conv=fsync status=none ;;
	3) rm -f "$file" ;;
	4) [ ! -e "$file" ] || truncate -s $((RANDOM * 64)) "$file" ;;
	5) for ((i = 0; i < 32; i++)); do
		echo "$i" > "$dir/small$i"
	   done && sync -f "$dir" && rm -f "$dir"/small* ;;
	6) [ ! -e "$file" ] || dd if="$file" of=/dev/null bs=256k status=none ;;
	# Not cgroup_create, which remembers each.
	7) mkdir "$CGROUPS/wb-soak" && echo 33554432 > "$CGROUPS/wb-soak/memory.max" &&
	   cgroup_run soak dd if=/dev/zero of="$file" bs=64k count=64 status=none &&
	   rmdir "$CGROUPS/wb-soak" ;;
	# A kernel need not have them all.
	8) put "$queue/scheduler" none mq-deadline kyber bfq
	   put "$queue/wbt_lat_usec" 0 500 2000 75000 &&
	   put "$queue/wbt_policy" requests bytes bytes ;;
	9) put "$bdi/max_drain_ms" 0 100 1000 3000 &&
	   put "$bdi/strict_limit" 0 1 ;;
	10) set_dirty bytes $(((RANDOM % 64 + 4) << 20)) ;;
	11) disk_beside ext4 guest fifo capacity_mib=64
	    dd if=/dev/zero of=/mnt/guest/file bs=64k count=32 status=none &&
	    disk_drop guest ;;
	esac
}

# settles() - was nothing dirty or under writeback after any sync?
settles() {
	# shellcheck disable=SC2016 # of awk
	awk '$2 ~ /^nr_(dirty|writeback)$/ && $3 > 64 { print "# " $0; bad = 1 } END { exit bad }' "$WB_OUT/samples"
}

# bounded(name, regex of samples, KiB) - one result, with the metric soak_NAME_kib
bounded() {
	local most
	most=$(grown "$2" | awk 'NR == 1 { print $1 }')
	metric "soak_${1}_kib" "$most"
	check "$1 does not grow by more than $3 KiB" holds "$most <= $3"
}

wb_begin
need_wbdisk
cgroups_check
[ -r /proc/slabinfo ] || skip_all "needs /proc/slabinfo (CONFIG_SLUB_DEBUG)"
readonly DIRS=(soak-xfs soak-ext4)
set_dirty bytes 67108864
disk_beside xfs soak-xfs fifo capacity_mib=512 store_mib=64
disk_beside ext4 soak-ext4 sata-ssd capacity_mib=512 store_mib=64
ktap_set_plan 6
RANDOM=${OPT[seed]} N=0
TOTAL=$((OPT[hours] * 3600))
[ "$TOTAL" -gt 0 ] || TOTAL=$SHORT_S
WARM=$((TOTAL / 8))
# The longer, the more idle: the work of a run grows with the root of its time.
IDLE_S=$(calc "int(sqrt($TOTAL) / 4)")
begin=$SECONDS next=0
while (((now = SECONDS - begin) < TOTAL)); do
	if ((now >= next)); then
		sample "$now"
		((next % (TOTAL / 8) > TOTAL / SAMPLES)) || note "$now of $TOTAL s, $N operations"
		next=$((next + TOTAL / SAMPLES))
	fi
	operation || die "operation $OP failed"
	((RANDOM % 3)) || sleep $((RANDOM % (2 * IDLE_S)))
	sleep .3
done
sample "$TOTAL"
metric soak_s "$TOTAL"
metric soak_operations "$N"
bounded memory memory $MEMORY_KIB
bounded slab slab $SLAB_KIB
bounded percpu percpu $SLAB_KIB
grown 'cache[.].*' | head -n 3 | sed 's/^/# grew most, KiB: /'
bounded cache 'cache[.].*' $CACHE_KIB
check "nothing stays dirty or under writeback" settles
check_dmesg
ktap_finished
