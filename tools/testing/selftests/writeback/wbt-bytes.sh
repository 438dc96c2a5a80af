#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What writeback throttling by bytes (wbt_policy) promises:
#	sysfs	the attributes, and that what they refuse changes nothing
#	bound	while readers are active, no more writes are in the disk than the
#		limit of the tracepoint wbt_bytes, and no request is larger than
#		its max_io: on several disks, schedulers, file systems and stacks
#	leave	without readers the bound goes, and comes back with them
#	sync	a small write that someone waits for passes what is held back, and
#		the background goes on beside such writes
#	exempt	O_DIRECT writes and swap are not held back, nor split
#	account	at rest, nothing is charged and nothing is held, whatever happened
#
# Bytes, sizes and order are those of trace events.  The same load with the policy
# "requests" is the control: it must break the bound.

# shellcheck source=functions.sh
. "$(dirname "$0")/functions.sh"

readonly TRACING=/sys/kernel/tracing
readonly TRACE=$TRACING/instances/wbt-bytes
readonly DEBUGFS=/sys/kernel/debug/block
readonly CGROUP=/sys/fs/cgroup
readonly MIB=1048576
readonly RT_PRIO=50
readonly READERS=2 READER_IOPS=500 READ_MIB=16
# Far from what is written, on a disk without a file system.
readonly RAW_READ_OFFSET=8g
readonly LOAD_MIB=96 RAW_MIB=64 FLUSH_MIB=4
# Windows of 25 ms with readers, of at least 0.1 s that a load takes.
readonly WINDOWS_MIN=4
# The control must exceed the bound by this factor.
readonly CONTROL_FACTOR=2
readonly LEAVE_MS=300
# A release that began before the first read may end after it.
readonly OBEY_MS=5
# Slow, so that the backlog stays for long: 64 KiB take 3.3 ms.
readonly SLOW_MBPS=20
readonly BACKLOG_WRITERS=4 BACKLOG_MIB=8
readonly FSYNCS=10 FSYNC_PASSED_BY=4
readonly SYNC_TASKS=4 SYNC_MS=600 LARGE_SYNC_MIB=8
readonly DIRECT_MIB=4 SWAP_MIB=32 SWAP_MEMORY_MIB=16 SWAPPED_MIB=24
# At rest: nothing moves for this time.
readonly REST=.3	# seconds
readonly HUGE=9223372036854775807	# largest s64: in ns it is none any more
readonly LONGEST=18446744073709551	# us, 585 years: the ns fit a u64

opt_parse "Writeback throttling by bytes: attributes, bound, order and accounting." "$@"

# ---- disks -----------------------------------------------------------------

READ_FILE=	# what the readers read
READ_OFFSET=0

# queue_file(attribute)
function queue_file() {
	echo "/sys/block/$DISK_NAME/queue/$1"
}

# queue_set(attribute, value) - of every modelled disk
function queue_set() {
	local name
	for name in "${DISK_LOWER[@]}"; do
		{ echo "$2" > "/sys/block/$name/queue/$1"; } 2> /dev/null && continue
		note "$name: cannot set $1 to $2"
		return 1
	done
}

# queue_get(attribute) - its value; of several in a list, the one in brackets
function queue_get() {
	local value
	value=$(< "$(queue_file "$1")")
	[[ $value =~ \[([^]]+)\] ]] && value=${BASH_REMATCH[1]}
	echo "$value"
}

# trace_disks() - the trace shows the disks of this test and starts anew
function trace_disks() {
	local name dev devs="" names=""
	for name in "${DISK_LOWER[@]}"; do
		IFS=: read -r -a dev < "/sys/block/$name/dev"
		devs+="${devs:+ || }dev == $((dev[0] << 20 | dev[1]))"
		names+="${names:+ || }name == \"${dev[0]}:${dev[1]}\""
	done
	echo "$devs" > "$TRACE/events/wbdisk/wbdisk_queue/filter"
	echo "($devs) && rwbs ~ \"*W*\"" | tee "$TRACE/events/block/block_bio_queue/filter" \
		> "$TRACE/events/block/block_rq_issue/filter"
	echo "$names" > "$TRACE/events/wbt/wbt_bytes/filter"
	echo > "$TRACE/trace"
}

# fresh(disk, fs, stack, options, [attribute=value...]) - the only disk is a new
# one with a file system and the file of the readers, and without a scheduler
function fresh() {
	OPT+=([disk]=$1 [stack]=$3 [dir]="" [disk-set]="")
	STACK_DEV=
	disk_setup "$2" "$4" "${@:5}"
	READ_FILE=$MNT/read READ_OFFSET=0
	lay_out read "$READ_MIB"
	queue_set scheduler none
	trace_disks
}

# fresh_raw(disk, [attribute=value...]) - the same without a file system
function fresh_raw() {
	OPT+=([disk]=$1 [stack]=none)
	wbdisk_create test "$(wbdisk_profile "$1")" "seed=${OPT[seed]}" "${@:2}" ||
		die "cannot make the disk: $*"
	DISK_KIND=wbdisk DISK_DEV=/dev/wbd-test DISK_NAME=wbd-test DISK_LOWER=(wbd-test)
	DISK_MODELS=(test) STACK_DEV='' MNT=/mnt/writeback
	READ_FILE=$DISK_DEV READ_OFFSET=$RAW_READ_OFFSET
	trace_disks
}

# lay_out(file, MiB) - its blocks are there beforehand, nothing is dirty
function lay_out() {
	dd if=/dev/zero of="$MNT/$1" bs=1M count="$2" conv=fsync status=none ||
		die "cannot write $MNT/$1"
}

# dirty(file, KiB) - in the page cache
function dirty() {
	dd if=/dev/zero of="$1" bs=64k count=$(($2 / 64)) conv=notrunc status=none ||
		die "cannot write $1"
}

# ---- load ------------------------------------------------------------------

STARTED=	# the last task that start() started
READERS_PID=

# start(cmd...) - in the background, without a word
function start() {
	"$@" > /dev/null 2>> "$WB_OUT/tasks.err" &
	STARTED=$!
}

# ioprio classes of readers: SCHED_FIFO alone would make theirs RT, for which
# mq-deadline keeps all other requests back for 10 s.
readonly CLASS_RT=1 CLASS_BE=2
READER_CLASS=$CLASS_BE

# fio_start(options...) - readers, at a higher priority than everything else
function fio_start() {
	start chrt -f "$RT_PRIO" fio --filename="$READ_FILE" --offset="$READ_OFFSET" \
		--size="${READ_MIB}m" --rw=randread --bs=4k --direct=1 --ioengine=psync \
		--thread=1 --time_based --clocksource=clock_gettime \
		--randseed="${OPT[seed]}" --rate_iops="$READER_IOPS" \
		--prioclass="$READER_CLASS" --prio=4 "$@"
}

# all_read() - has every disk completed some reads?
function all_read() {
	local name
	for name in "${DISK_MODELS[@]}"; do
		[ "$(wbdisk_stat "$name" reads)" -ge 20 ] || return
	done
}

# stats_reset() - of every disk
function stats_reset() {
	local name
	for name in "${DISK_MODELS[@]}"; do
		wbdisk_set "$name" reset_stats 1
	done
}

# readers_start() - returns when they read
function readers_start() {
	stats_reset
	fio_start --name=readers --numjobs="$READERS" --runtime=600
	READERS_PID=$STARTED
	loop_until all_read || die "the readers do not read: $(tail -n 1 "$WB_OUT/tasks.err")"
}

function readers_stop() {
	kill -INT "$READERS_PID"
	wait "$READERS_PID"
}

declare -A PEAK	# most bytes of writes in each disk
declare -A BEFORE	# its limit and max_io when the load begins

# bytes_get(disk, key) - one number of what debugfs knows
function bytes_get() {
	awk -v key="$2" '$1 == key { print $2 }' "$DEBUGFS/$1/rqos/wbt/bytes"
}

# load(file, MiB, [sync]) - dd and sync next to readers; statistics and trace show
# it.  The flusher begins with the first MiBs; with "sync" all is left to sync.
function load() {
	local name flush=$FLUSH_MIB
	[ -z "${3:-}" ] || flush=$(($2 * 2))
	set_dirty background_bytes $((flush * MIB))
	readers_start
	for name in "${DISK_LOWER[@]}"; do
		BEFORE[$name]="$(bytes_get "$name" limit) $(bytes_get "$name" max_io)"
	done
	stats_reset
	echo > "$TRACE/trace"
	dd if=/dev/zero of="$1" bs=1M count="$2" conv=notrunc status=none ||
		note "dd failed"
	sync
	for name in "${DISK_MODELS[@]}"; do
		PEAK[wbd-$name]=$(wbdisk_stat "$name" inflight_write_peak_bytes)
	done
	readers_stop
}

# ---- the trace -------------------------------------------------------------

# events() - one line "name seconds pid rest" for each event so far
function events() {
	awk '!/^#/ {
		for (i = 1; i <= NF && $i !~ /^(block|wbt|wbdisk)_[a-z_]+:$/; i++)
			;
		if (i > NF)
			next
		name = $i; sub(/:$/, "", name)
		time = $(i - 1); sub(/:$/, "", time)
		pid = $1; sub(/.*-/, "", pid)
		rest = ""
		while (++i <= NF)
			rest = rest " " $i
		print name, time, pid rest
	}' "$TRACE/trace"
}

declare -A SEEN

# measure(disk) - what the trace says about it, in SEEN:
#	windows active		events wbt_bytes, those with readers
#	limit max_io		the largest of them, and of when the load began
#	rate_min rate_max p99	of those with readers, bytes/s and ns
#	reads ahead		reads that arrived, most bytes of writes ahead of one
#	writes bytes largest	write requests issued
#	sync			bytes of them that someone waits for
function measure() {
	local key value
	SEEN=()
	while read -r key value; do
		SEEN[$key]=$value
	done < <(events | awk -v bdi="$(< "/sys/block/$1/dev"):" -v before="${BEFORE[$1]:-}" '
		function number(name,  i) {
			for (i = 5; i <= NF; i++)
				if (index($i, name "=") == 1)
					return substr($i, length(name) + 2) + 0
		}
		BEGIN { split(before, start); limit = start[1]; max_io = start[2] }
		BEGIN { dev = bdi; sub(/:/, ",", dev); sub(/:/, "", dev) }
		$1 == "wbt_bytes" && $4 == bdi {
			windows++
			if ((v = number("limit")) > limit) limit = v
			if ((v = number("max_io")) > max_io) max_io = v
			if (!number("active")) next
			active++
			if ((v = number("rate")) > rate_max) rate_max = v
			if (v < rate_min || active == 1) rate_min = v
			if ((v = number("p99")) > p99) p99 = v
		}
		$4 != dev { next }
		$1 == "wbdisk_queue" && $5 == "read" {
			reads++
			if ($10 > ahead) ahead = $10
		}
		$1 == "block_rq_issue" && $5 ~ /W/ && $6 > 0 {
			writes++
			bytes += $6
			if ($5 ~ /S/) sync += $6
			if ($6 > largest) largest = $6
		}
		END {
			printf "windows %d\nactive %d\nlimit %.0f\nmax_io %d\n", windows, active, limit, max_io
			printf "rate_min %.0f\nrate_max %.0f\np99 %.0f\n", rate_min, rate_max, p99
			printf "reads %d\nahead %.0f\n", reads, ahead
			printf "writes %d\nbytes %.0f\nlargest %d\nsync %.0f\n", writes, bytes, largest, sync
		}')
}

# ---- sysfs -----------------------------------------------------------------

# takes(attribute, value, [shown]) - is a value taken, and read back?
function takes() {
	local want=${3:-$2} now
	if ! queue_set "$1" "$2"; then
		return 1
	fi
	now=$(queue_get "$1")
	[ "$now" = "$want" ] && return
	note "$1 is '$now' after setting it to '$2'"
	return 1
}

# refuses(attribute, value, [error]) - is it refused, and everything as it was?
function refuses() {
	local before after err
	before=$(cat "/sys/block/$DISK_NAME/queue/"{wbt_policy,wbt_drain_pct,wbt_lat_usec})
	err=$({ echo "$2" > "$(queue_file "$1")"; } 2>&1)
	after=$(cat "/sys/block/$DISK_NAME/queue/"{wbt_policy,wbt_drain_pct,wbt_lat_usec})
	if [ -z "$err" ]; then
		note "$1 took '${2:0:40}'; it is now $(queue_get "$1")"
		queue_set wbt_lat_usec -1
		return 1
	fi
	if [[ $err != *"${3:-}" ]]; then
		note "$1 refuses '${2:0:40}' with: $err"
		return 1
	fi
	[ "$before" = "$after" ] && return
	note "before: ${before//$'\n'/ }; after: ${after//$'\n'/ }"
	return 1
}

function test_sysfs() {
	local value long
	printf -v long '%3000s' ''
	fresh fifo xfs none ""
	check "sysfs: wbt_policy lists both, bytes is the default" \
		[ "$(< "$(queue_file wbt_policy)")" = "requests [bytes]" ]
	check "sysfs: wbt_drain_pct is 95 by default" [ "$(queue_get wbt_drain_pct)" = 95 ]
	for value in requests bytes; do
		check "sysfs: wbt_policy takes $value" takes wbt_policy "$value"
	done
	for value in "" byte "bytes x" "bytes,requests" 1 BYTES "[bytes]" "${long// /b}"; do
		check "sysfs: wbt_policy refuses '${value:0:16}'" \
			refuses wbt_policy "$value" "Invalid argument"
	done
	for value in 0 100 95; do
		check "sysfs: wbt_drain_pct takes $value" takes wbt_drain_pct "$value"
	done
	for value in 101 -1 4294967296 4294967391 99999999999999999999 "" 5x x; do
		check "sysfs: wbt_drain_pct refuses '$value'" refuses wbt_drain_pct "$value"
	done
	for value in 1 10000000 2000; do
		check "sysfs: wbt_lat_usec takes $value" takes wbt_lat_usec "$value"
	done
	check "sysfs: wbt_lat_usec takes -1, the default" takes wbt_lat_usec -1 2000
	# In ns, the last four are more than a u64 can be.
	for value in -2 x 5x "" "$HUGE" 18446744073709552 36893488147419104 18446744073709551616; do
		check "sysfs: wbt_lat_usec refuses '$value'" refuses wbt_lat_usec "$value"
	done
	disk_teardown
}

# What the disk drains in such a time is no u64; a fast one, so that not even a
# 128-bit quotient is.
function test_longest() {
	local before after
	fresh_raw nvme
	queue_set scheduler none
	load "$DISK_DEV" "$RAW_MIB"
	before=$(bytes_get "$DISK_NAME" limit)
	note "target of $LONGEST us at $(bytes_get "$DISK_NAME" rate) bytes/s"
	if ! queue_set wbt_lat_usec "$LONGEST"; then
		check "sysfs: refused, the longest target changes nothing" \
			[ "$(bytes_get "$DISK_NAME" limit)" = "$before" ]
	else
		load "$DISK_DEV" "$RAW_MIB"
		after=$(bytes_get "$DISK_NAME" limit)
		check "sysfs: with the longest target the limit is larger than before" \
			holds "$after > 10 * $before"
	fi
	disk_teardown
}

# flips() - change everything next to readers and a writer
function flips() {
	local i value
	for ((i = 0; i < 4; i++)); do
		for value in requests bytes; do
			takes wbt_policy "$value" || return
			sleep .02
		done
		takes wbt_drain_pct $((i * 25)) && takes wbt_lat_usec $((1000 + i)) || return
		for value in mq-deadline none; do
			takes scheduler "$value" || return
			sleep .02
		done
	done
}

# write_on() - until the changes are over; fails as dd does
function write_on() {
	until [ -e "$WB_OUT/changed" ]; do
		dd if=/dev/zero of="$MNT/write" bs=1M count=16 conv=fsync,notrunc || return
	done
}

function test_flips() {
	local writer bytes
	fresh fifo xfs none ""
	readers_start
	start write_on
	writer=$STARTED
	sleep .1
	bytes=$(wbdisk_stat test write_bytes)
	check "sysfs: policy, target and scheduler change under load" flips
	bytes=$(($(wbdisk_stat test write_bytes) - bytes))
	check "sysfs: that was load" [ "$bytes" -ge $((16 * MIB)) ]
	touch "$WB_OUT/changed"
	wait "$writer"
	check "sysfs: the writer does not mind" [ $? = 0 ]
	readers_stop
	check "sysfs: nothing is left over" at_rest
	disk_teardown
}

# ---- bound -----------------------------------------------------------------

# bound_results(label) - four results for the load before
function bound_results() {
	local label=$1 name ran=1 behind=1 within=1 small=1
	for name in "${DISK_LOWER[@]}"; do
		measure "$name"
		note "$label: $name: limit ${SEEN[limit]}, max_io ${SEEN[max_io]};" \
			"${SEEN[reads]} reads, ahead at most ${SEEN[ahead]};" \
			"${SEEN[writes]} writes, ${SEEN[sync]} of ${SEEN[bytes]} bytes sync, largest ${SEEN[largest]}, peak ${PEAK[$name]};" \
			"rate ${SEEN[rate_min]}..${SEEN[rate_max]}, p99 ${SEEN[p99]}, ${SEEN[active]} windows"
		[[ ${SEEN[active]} -ge $WINDOWS_MIN && ${SEEN[reads]} -ge 50 ]] || ran=0
		[ "${SEEN[ahead]}" -le $((SEEN[limit] + SEEN[max_io])) ] || behind=0
		[ "${PEAK[$name]}" -le $((SEEN[limit] + SEEN[max_io])) ] || within=0
		[ "${SEEN[largest]}" -le "${SEEN[max_io]}" ] || small=0
	done
	check "$label: readers were active in $WINDOWS_MIN windows" [ "$ran" = 1 ]
	check "$label: a read arrives behind no more than the limit and a request" [ "$behind" = 1 ]
	check "$label: nor is there ever more in the disk" [ "$within" = 1 ]
	check "$label: no write is larger than max_io" [ "$small" = 1 ]
}

function test_bound() {
	local limit max_io
	fresh fifo xfs none ""
	load "$MNT/write" "$LOAD_MIB"
	bound_results "fifo"
	limit=${SEEN[limit]} max_io=${SEEN[max_io]}
	check "fifo: rate is within a factor of 2 of the link's" \
		holds "${SEEN[rate_min]} * 2 >= 450e6 && ${SEEN[rate_max]} <= 2 * 450e6"
	check "fifo: there is a percentile of the reads" \
		holds "${SEEN[p99]} > 9e4 && ${SEEN[p99]} < 1e9"

	queue_set wbt_policy requests
	load "$MNT/write" "$LOAD_MIB"
	measure "$DISK_NAME"
	note "control: ahead at most ${SEEN[ahead]}, peak ${PEAK[$DISK_NAME]}, largest ${SEEN[largest]}"
	check "control, by requests: $CONTROL_FACTOR times that bound is ahead of a read" \
		[ "${SEEN[ahead]}" -gt $((CONTROL_FACTOR * (limit + max_io))) ]
	check "control: there are requests larger than max_io" [ "${SEEN[largest]}" -gt "$max_io" ]
	check "control: no window of throttling by bytes" [ "${SEEN[windows]}" = 0 ]
	queue_set wbt_policy bytes
	load "$MNT/write" "$LOAD_MIB" sync
	bound_results "fifo, by bytes again, sync"
	disk_teardown

	fresh fifo xfs none "" max_io_kib=4096 max_segments=2048
	queue_set max_sectors_kb 4096
	load "$MNT/write" "$LOAD_MIB"
	bound_results "fifo, requests up to 4 MiB"
	disk_teardown

	fresh sata xfs none ""
	load "$MNT/write" "$LOAD_MIB"
	bound_results "sata"
	disk_teardown

	fresh sata ext4 none no_prefetch_block_bitmaps
	queue_set scheduler mq-deadline
	load "$MNT/write" "$LOAD_MIB"
	bound_results "sata, ext4, mq-deadline"
	disk_teardown

	fresh_raw fifo
	queue_set scheduler mq-deadline
	load "$DISK_DEV" "$RAW_MIB"
	bound_results "fifo, bios of 4 KiB, mq-deadline"
	check "fifo, bios of 4 KiB: they are merged" [ "${SEEN[largest]}" -gt 4096 ]
	disk_teardown
}

# test_stack(kind) - the disk below
function test_stack() {
	local why results=4
	OPT+=([disk]=fifo [stack]=$1 [dir]="")
	why=$(
		function skip_all() { echo "$*"; exit; }
		stack_check
	)
	if [ -n "$why" ]; then
		while ((results--)); do
			skip_test "fifo below $1" "$why"
		done
		return
	fi
	fresh fifo xfs "$1" ""
	load "$MNT/write" "$LOAD_MIB"
	bound_results "fifo below $1"
	disk_teardown
}

# ---- readers leave and come ------------------------------------------------

function test_leave() {
	local limit max_io leave obey largest
	fresh fifo xfs none "" link_mbps=150
	start dd if=/dev/zero of="$MNT/write" bs=1M count=360
	sleep .2
	echo > "$TRACE/trace"
	# With readers, without, and with them again.
	fio_start --name=first --runtime=600ms --name=second --startdelay=1200ms --runtime=500ms
	wait
	measure "$DISK_NAME"
	limit=${SEEN[limit]} max_io=${SEEN[max_io]}
	# The longest time without a read is the one between them.  Writes that
	# enter the disk: the first large one in it; after it, the last one that
	# would not fit, and the largest one once the old ones are gone.
	read -r leave obey largest < <(events | awk -v limit="$limit" -v max_io="$max_io" '
		$1 != "wbdisk_queue" { next }
		$5 == "read" {
			if (n++ && $2 - read > gap) { gap = $2 - read; left = read; came = $2 }
			read = $2
			next
		}
		$5 == "write" {
			i = $6 == "fua"
			time[++writes] = $2; bytes[writes] = $(8 + i); ahead[writes] = $(10 + i)
		}
		END {
			for (i = 1; i <= writes && time[i] < read; i++) {
				large = bytes[i] > max_io || ahead[i] + bytes[i] > limit + max_io
				if (time[i] > left && time[i] < came && large && !first)
					first = time[i]
				if (time[i] > came && ahead[i] && ahead[i] + bytes[i] > limit)
					last = time[i]
				if (time[i] > came + .3 && bytes[i] > most)
					most = bytes[i]
			}
			printf "%.3f %.3f %d\n", first ? (first - left) * 1000 : 1e9,
				last ? (last - came) * 1000 : 0, most
		}')
	metric bytes_leave "$leave" ms
	metric bytes_obey "$obey" ms
	check "leave: without readers there is more than the bound after $LEAVE_MS ms" \
		holds "$leave <= $LEAVE_MS"
	check "leave: from the first read on, no write enters that does not fit" \
		holds "$obey <= $OBEY_MS"
	note "largest request $LEAVE_MS ms after that: $largest"
	check "leave: and then they are small again" holds "$largest > 0 && $largest <= $max_io"
	sync
	disk_teardown
}

# ---- order -----------------------------------------------------------------

BACKLOG_PIDS=()

# backlog_start() - several tasks write in the background until the disk has more
# than it takes
function backlog_start() {
	local i
	BACKLOG_PIDS=()
	for ((i = 0; i < BACKLOG_WRITERS; i++)); do
		dirty "$MNT/background$i" $((BACKLOG_MIB * 1024))
	done
	for ((i = 0; i < BACKLOG_WRITERS; i++)); do
		start xfs_io -c "sync_range -w 0 ${BACKLOG_MIB}m" "$MNT/background$i"
		BACKLOG_PIDS+=("$STARTED")
	done
}

function backlog_wait() {
	wait "${BACKLOG_PIDS[@]}"
}

# backlog_there() - do some of them still have to write?
function backlog_there() {
	kill -0 "${BACKLOG_PIDS[0]}" || kill -0 "${BACKLOG_PIDS[1]}"
} 2> /dev/null

# slow_down() - from here on the disk is slow
function slow_down() {
	wbdisk_set test link_mbps "$SLOW_MBPS"
}

# passed(first, last) - of the write bios to these sectors: how many; how many
# background writes were issued between the arrival of one and the request with it,
# at most; and the longest time of that, ms
function passed() {
	events | awk -v first="$1" -v last="$2" '
		$5 !~ /W/ { next }
		$1 == "block_bio_queue" && $6 >= first && $6 <= last { since[$6] = $2; count[$6] = others }
		$1 == "block_rq_issue" && $6 && $8 >= first && $8 <= last {
			for (sector in since) {
				if (sector + 0 < $8 || sector + 0 >= $8 + $10)
					continue
				n++
				if (others - count[sector] > most) most = others - count[sector]
				if ($2 - since[sector] > wait) wait = $2 - since[sector]
				delete since[sector]
			}
			next
		}
		$1 == "block_rq_issue" && $5 == "W" { others++ }
		END { printf "%d %d %.3f\n", n, most, wait * 1000 }'
}

# sectors(file) - first and last one of a file with a single extent
function sectors() {
	xfs_io -c bmap "$1" | awk '
		$2 ~ /^\[/ && $3 ~ /^[0-9]+\.\.[0-9]+$/ { n++; split($3, s, /\.\./) }
		END { if (n == 1) print s[1], s[2] + 0 }' | grep .
}

# test_sync(scheduler, [readers' class]) - of fdatasync no log writes are part
function test_sync() {
	local i first last n most ms label="sync, $1${2:+, readers of class $2}" suffix="_${1//-/_}${2:+_$2}"
	[ -z "${2:-}" ] || READER_CLASS=$CLASS_RT
	fresh fifo xfs none ""
	queue_set scheduler "$1"
	lay_out idle 1
	read -r first last < <(sectors "$MNT/idle") || die "no extent of $MNT/idle"
	slow_down
	readers_start
	backlog_start
	sleep .1
	echo > "$TRACE/trace"
	check "$label: background writes are held back" holds "$(bytes_get "$DISK_NAME" held_bytes) > 0"
	for ((i = 0; i < FSYNCS; i++)); do
		dd if=/dev/zero of="$MNT/idle" bs=4k count=1 conv=notrunc,fdatasync status=none
	done
	check "$label: the backlog outlasts the syncs" backlog_there
	read -r n most ms < <(passed "$first" "$last")
	metric "bytes_sync_passed_by$suffix" "$most" requests
	metric "bytes_sync_wait_max$suffix" "$ms" ms
	check "$label: all $FSYNCS syncs wrote" [ "$n" -eq "$FSYNCS" ]
	check "$label: at most $FSYNC_PASSED_BY background writes go before one" \
		[ "$most" -le "$FSYNC_PASSED_BY" ]
	readers_stop
	READER_CLASS=$CLASS_BE
	backlog_wait
	sync
	disk_teardown
}

# issued(flags) - bytes of the write requests with such flags
function issued() {
	events | awk -v rwbs="$1" '$1 == "block_rq_issue" && $5 == rwbs { n += $6 } END { print n + 0 }'
}

# all_sync() - has the disk seen more than the files' first contents?
function all_sync() {
	[ "$(issued WS)" -gt $((2 * SYNC_TASKS * MIB)) ]
}

# The background next to nothing but writes that someone waits for.
function test_fair() {
	local mbps bytes syncs
	fresh fifo xfs none ""
	lay_out large "$LARGE_SYNC_MIB"
	slow_down
	start fio --thread --clocksource=clock_gettime --time_based --runtime=600 \
		--randseed="${OPT[seed]}" --name=sync --directory="$MNT" --size=1m \
		--rw=randwrite --bs=4k --fsync=1 --numjobs="$SYNC_TASKS"
	READERS_PID=$STARTED
	loop_until all_sync || die "nothing syncs: $(tail -n 1 "$WB_OUT/tasks.err")"
	backlog_start
	echo > "$TRACE/trace"
	sleep "$(calc "$SYNC_MS / 1e3")"
	bytes=$(issued W)
	syncs=$(events | grep -c '^block_rq_issue.* WS ')
	readers_stop
	mbps=$(calc "$bytes / $SYNC_MS / 1e3")
	metric bytes_background_mbps "$mbps" MB/s
	metric bytes_sync_writes "$syncs" requests
	check "fair: the background goes on beside $SYNC_TASKS tasks that fsync" \
		holds "$mbps >= $SLOW_MBPS / 4 && $syncs > 10 * $SYNC_TASKS"
	backlog_wait
	sync

	# A large one: no limit in bytes lets it pass.
	dirty "$MNT/large" $((LARGE_SYNC_MIB * 1024))
	readers_start
	backlog_start
	sleep .1
	echo > "$TRACE/trace"
	sync -d "$MNT/large"
	check "fair: the backlog outlasts a large sync" backlog_there
	bytes=$(issued W)
	metric bytes_background_share "$(calc "100 * $bytes / ($bytes + $(issued WS) + 1)")" percent
	check "fair: nor does that stop it" holds "$bytes > $LARGE_SYNC_MIB * $MIB / 64"
	readers_stop
	backlog_wait
	sync
	disk_teardown
}

# ---- what is exempt --------------------------------------------------------

function test_direct() {
	local pid n most least ms first last
	fresh fifo xfs none "" max_segments=1024
	lay_out direct "$DIRECT_MIB"
	read -r first last < <(sectors "$MNT/direct") || die "no extent of $MNT/direct"
	slow_down
	readers_start
	backlog_start
	sleep .1
	echo > "$TRACE/trace"
	start dd if=/dev/zero of="$MNT/direct" bs=1M count="$DIRECT_MIB" oflag=direct conv=notrunc
	pid=$STARTED
	wait "$pid"
	check "direct: the backlog outlasts it" backlog_there
	read -r n most ms < <(passed "$first" "$last")
	metric bytes_direct_wait_max "$ms" ms
	check "direct: no background write goes before one" [ "$n $most" = "$DIRECT_MIB 0" ]
	read -r least most < <(events | awk -v first="$first" -v last="$last" '
		$1 == "block_rq_issue" && $5 ~ /W/ && $8 >= first && $8 <= last {
			if (!n++ || $6 < least) least = $6
			if ($6 > most) most = $6
		}
		END { print least + 0, most + 0 }')
	check "direct: 1 MiB stays 1 MiB" [ "$least $most" = "$MIB $MIB" ]
	readers_stop
	backlog_wait
	sync
	disk_teardown
}

# swap_out() - push some tmpfs out of a small cgroup
function swap_out() {
	local group=$CGROUP/wbt-bytes
	mkdir "$group" && on_exit rmdir "$group" || return
	echo "${SWAP_MEMORY_MIB}M" > "$group/memory.max" || return
	(
		echo "$BASHPID" > "$group/cgroup.procs"
		# Zeroes are not written.
		exec yes calm
	) | (
		echo "$BASHPID" > "$group/cgroup.procs"
		exec dd of="$WB_OUT/swapped/data" bs=64k count=$((SWAPPED_MIB * 16)) iflag=fullblock
	)
} 2>> "$WB_OUT/tasks.err"

function test_swap() {
	local n most ms first last
	if ! { echo +memory > "$CGROUP/cgroup.subtree_control"; } 2> /dev/null; then
		skip_test "swap: the backlog outlasts it" "needs the memory controller of cgroup v2"
		skip_test "swap: it is not held back" "needs the memory controller of cgroup v2"
		return
	fi
	fresh fifo xfs none ""
	lay_out swap "$SWAP_MIB"
	chmod 600 "$MNT/swap"
	if ! mkswap "$MNT/swap" > /dev/null || ! swapon "$MNT/swap"; then
		die "cannot swap to $MNT/swap"
	fi
	on_exit swap_off "$MNT/swap"
	read -r first last < <(sectors "$MNT/swap") || die "no extent of $MNT/swap"
	mkdir "$WB_OUT/swapped" && mount -t tmpfs tmpfs "$WB_OUT/swapped"
	on_exit umount_fs "$WB_OUT/swapped"
	slow_down
	readers_start
	backlog_start
	sleep .1
	echo > "$TRACE/trace"
	swap_out
	check "swap: the backlog outlasts it" backlog_there
	read -r n most ms < <(passed "$first" "$last")
	metric bytes_swap_passed_by "$most" requests
	note "swap: $n bios, longest wait $ms ms"
	check "swap: it is not held back" holds "$n > 100 && $most <= 1"
	readers_stop
	backlog_wait
	umount_fs "$WB_OUT/swapped"
	swap_off "$MNT/swap"
	disk_teardown
}

function swap_off() {
	! grep -q "^$1 " /proc/swaps || swapoff "$1"
}

# ---- accounting ------------------------------------------------------------

# at_rest() - is nothing charged or held once nothing is written any more?
function at_rest() {
	local left
	sync
	sleep "$REST"
	left=$(awk '/^(inflight|held|held_bytes|gate) / && $2 != 0' "$DEBUGFS/$DISK_NAME/rqos/wbt/bytes") ||
		return
	[ -z "$left" ] && return
	note "${left//$'\n'/, } of $DISK_NAME is left"
	return 1
}

# changes() - the kernel checks its counts when a setting changes
function changes() {
	queue_set wbt_policy requests && queue_set wbt_policy bytes && at_rest
}

# mixed(label, disk, fs, scheduler, nomerges) - two results
function mixed() {
	local label="account: $2, $3, $4, nomerges $5" i
	fresh "$2" "$3" none discard
	if ! queue_set scheduler "$4" || ! queue_set nomerges "$5"; then
		die "cannot set up $label"
	fi
	readers_start
	start dd if=/dev/zero of="$MNT/buffered" bs=1M count=48
	dd if=/dev/zero of="$MNT/direct" bs=1M count=8 oflag=direct status=none
	for i in 1 2 3 4 5; do
		dd if=/dev/zero of="$MNT/small" bs=4k count=$((i * 7)) conv=fsync status=none
	done
	rm "$MNT/direct"
	dd if=/dev/zero of="$MNT/synced" bs=1M count=16 conv=fsync status=none
	wait "$STARTED"
	rm "$MNT/synced"
	sync
	readers_stop
	check "$label: nothing is left over" at_rest
	check "$label: nor after a change of policy" changes
	disk_teardown
}

# mixed_raw(disk, scheduler, nomerges) - with I/O errors and discards
function mixed_raw() {
	local label="account: $1, raw, $2, nomerges $3" fault
	fresh_raw "$1"
	if ! queue_set scheduler "$2" || ! queue_set nomerges "$3"; then
		die "cannot set up $label"
	fi
	queue_set io_timeout 300
	readers_start
	for fault in "write 10" "write 3 timeout"; do
		wbdisk_set test fail_nth "$fault"
		dd if=/dev/zero of="$DISK_DEV" bs=64k count=128 conv=notrunc,fsync status=none 2> /dev/null
	done
	dd if=/dev/zero of="$DISK_DEV" bs=64k count=32 seek=512 oflag=direct status=none
	start dd if=/dev/zero of="$DISK_DEV" bs=1M count=8 seek=64 conv=notrunc
	blkdiscard -o $((128 * MIB)) -l $((16 * MIB)) "$DISK_DEV"
	blkdiscard -z -o $((128 * MIB)) -l $((16 * MIB)) "$DISK_DEV"
	wait "$STARTED"
	sync
	readers_stop
	note "$label: $(wbdisk_stat test errors_injected) errors"
	check "$label: nothing is left over" at_rest
	check "$label: nor after a change of policy" changes
	disk_teardown
}

# A disk that is pulled out while writes are held.
function test_removal() {
	fresh_raw fifo link_mbps="$SLOW_MBPS"
	readers_start
	start dd if=/dev/zero of="$DISK_DEV" bs=1M count=64 conv=fsync
	sleep .3
	check "removal: background writes are held back" holds "$(bytes_get "$DISK_NAME" held_bytes) > 0"
	wbdisk_destroy test
	wait
	check "removal: the disk goes" [ ! -e "/sys/block/$DISK_NAME" ]
}

# ---- main ------------------------------------------------------------------

wb_begin fio awk dd chrt xfs_io mkfs.xfs mke2fs blkdiscard mkswap
need_wbdisk
wbdisk_create test fifo || die "cannot make a disk"
DISK_NAME=wbd-test
[ -e "$(queue_file wbt_policy)" ] ||
	skip_all "this kernel has no queue/wbt_policy: it throttles writeback by requests only"
[ -r "$DEBUGFS/$DISK_NAME/rqos/wbt/bytes" ] || mount -t debugfs debugfs "${DEBUGFS%/*}" 2> /dev/null
[ -r "$DEBUGFS/$DISK_NAME/rqos/wbt/bytes" ] || skip_all "needs CONFIG_BLK_DEBUG_FS"
wbdisk_destroy test
mkdir -p "$TRACE" 2> /dev/null
[ -e "$TRACE/events/wbt/wbt_bytes/enable" ] || skip_all "needs tracefs with wbt:wbt_bytes in $TRACING"
on_exit rmdir "$TRACE"
echo 16384 > "$TRACE/buffer_size_kb"
for event in block/block_bio_queue block/block_rq_issue wbdisk/wbdisk_queue wbt/wbt_bytes; do
	echo 1 > "$TRACE/events/$event/enable"
done

ktap_set_plan 114
test_sysfs
test_longest
test_flips
test_bound
test_stack linear
test_stack raid0
test_leave
# The flusher stays out of what follows: tasks write, and know what.
set_dirty background_ratio 50
set_dirty ratio 60
set_dirty writeback_centisecs 0
test_sync none
test_sync mq-deadline
test_sync mq-deadline rt
test_fair
test_direct
test_swap
restore_dirty
mixed account sata xfs mq-deadline 0
mixed account nvme ext4 none 2
mixed account fifo ext4 kyber 1
mixed_raw sata mq-deadline 0
mixed_raw nvme none 2
test_removal
check_dmesg
ktap_finished
