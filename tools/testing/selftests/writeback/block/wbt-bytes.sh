#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What writeback throttling by bytes (wbt_policy) promises to readers:
#	sysfs	the attributes, and that what they refuse changes nothing
#	bound	while readers are active, no more writes are in the disk than the
#		limit of the tracepoint wbt_bytes, and no request is larger than
#		its max_io: on several disks, schedulers, file systems and stacks
#	tags	with one or two tags, one that is freed goes to a read that waits for
#		it, and with one no write waits for it, too
#	raw	small bios that go on where the last one ended are one write
#	rare	one read a second, or one small write with O_DIRECT, keeps the bound
#	think	behind a buffer that hides its queue, who reads in bursts waits for it once
#	alone	without readers no more is in the disk than by requests
#	leave	without readers the bound goes, and comes back with them
#
# Bytes, sizes and order are those of trace events.  The same load with the policy
# "requests" is the control: it must break the bound.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/by-bytes.sh
. "$WB_DIR/lib/by-bytes.sh"
# shellcheck source=../lib/fio.sh
. "$WB_DIR/lib/fio.sh"

readonly LOAD_MIB=96 RAW_MIB=64 FLUSH_MIB=4
# Windows of 25 ms with readers, of at least 0.1 s that a load takes.
readonly WINDOWS_MIN=4
# The control must exceed the bound by this factor.
readonly CONTROL_FACTOR=2
# Who read within so long reads, and what is held then is gone soon after it.
readonly READER_MS=5000 LEAVE_MS=5200
# What a disk is given until its rate is known, bytes; of at most eight reads.
readonly RARE_AHEAD=524288 RARE_MIN=6 RARE_MIB=128
# A quarter of what the buffer hides.  The middle of three runs: one has seven bursts.
readonly THINK_MIB=960 THINK_US=65000 THINK_RUNS=3
readonly ALONE_MIB=64 ALONE_MBPS=40
# A write that waits for a tag when the first read comes goes as it is.  Who waits is
# woken when four of 32 are free: with 1.25 MiB each, that is 35 ms on this disk.
readonly OBEY_MS=40
# Of a write to a disk without a file system; half of the least that a request may be.
readonly MERGED=32768
readonly STICK_MIB=16 STICK_IOPS=100 RAW_PERCENT=15
# More than is held, on a slow disk; for each write that may be held.
readonly HELD_FILE_MIB=384 HELD_MBPS=40 HELD_MIB=4
readonly HUGE=9223372036854775807	# largest s64: in ns it is none any more

about title \
	"throttling by bytes: attributes, and the bound that readers rely on, on three disks and two stacks"
about replays "none: tests wbt_policy=bytes; skips on a kernel without it"
about wall 60
about kernel BLK_DEV_DM MD BLK_DEV_MD MD_RAID0
about series
about not_fast "where fio, which spins while it waits, takes minutes"
measures 'bytes_leave, bytes_obey' ms lower \
	"from the last read to more than the bound; from the first one to the last write above it"
measures bytes_raw ratio lower "to a stick without a file system: time by bytes over that by requests"
measures 'bytes_rare_read, bytes_rare_write' bytes lower \
	"most bytes of writes ahead of one read a second, or of one small write with O_DIRECT"
measures bytes_think us lower "behind a buffer that hides its queue: median read of those in bursts"
measures bytes_alone ratio lower \
	"without readers: most bytes of the flusher's writes in the disk, over that by requests"
measures bytes_held bytes lower "most bytes of writes held while somebody reads"
measures bytes_passed count lower "with two tags: most writes that pass a read which waits for one"
case_parse "$@"

# ---- load ------------------------------------------------------------------

declare -A PEAK	# most bytes of writes in each disk
declare -A BEFORE	# its limit and max_io when the load begins

# load(file, MiB, [sync]) - dd and sync next to readers; statistics and trace show
# it.  The flusher begins with the first MiBs; with "sync" all is left to sync.
load() {
	local name flush=$FLUSH_MIB
	[ -z "${3:-}" ] || flush=$(($2 * 2))
	set_dirty background_bytes $((flush * MIB))
	readers_start
	for name in "${DISK_LOWER[@]}"; do
		BEFORE[$name]="$(bytes_get "$name" limit) $(bytes_get "$name" max_io)"
	done
	stats_reset
	trace_clear
	dd if=/dev/zero of="$1" bs=1M count="$2" conv=notrunc status=none ||
		note "dd failed"
	sync
	for name in "${DISK_MODELS[@]}"; do
		PEAK[wbd-$name]=$(wbdisk_stat "$name" inflight_write_peak_bytes)
	done
	readers_stop
}

declare -A SEEN

# measure(disk) - what the trace says about it, in SEEN:
#	windows active		events wbt_bytes, those with readers
#	limit max_io		the largest of them, and of when the load began
#	rate_max		of those with readers, bytes/s
#	reads ahead		reads that arrived, most bytes of writes ahead of one
#	writes bytes largest	write requests issued
#	sync			bytes of them that someone waits for
measure() {
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
			printf "rate_max %.0f\n", rate_max
			printf "reads %d\nahead %.0f\n", reads, ahead
			printf "writes %d\nbytes %.0f\nlargest %d\nsync %.0f\n", writes, bytes, largest, sync
		}')
}

# ---- sysfs -----------------------------------------------------------------

# takes(attribute, value, [shown]) - is a value taken, and read back?
takes() {
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
refuses() {
	local before after err
	before=$(cat "/sys/block/$DISK_NAME/queue/"{wbt_policy,wbt_lat_usec})
	err=$({ echo "$2" > "$(queue_file "$1")"; } 2>&1)
	after=$(cat "/sys/block/$DISK_NAME/queue/"{wbt_policy,wbt_lat_usec})
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

test_sysfs() {
	local value long
	printf -v long '%3000s' ''
	fresh fifo xfs none ""
	check "sysfs: wbt_policy lists both, bytes is the default" \
		[ "$(< "$(queue_file wbt_policy)")" = "requests [bytes]" ]
	check "sysfs: there is no wbt_drain_pct" [ ! -e "$(queue_file wbt_drain_pct)" ]
	for value in requests bytes; do
		check "sysfs: wbt_policy takes $value" takes wbt_policy "$value"
	done
	for value in "" byte "bytes x" "bytes,requests" 1 BYTES "[bytes]" "${long// /b}"; do
		check "sysfs: wbt_policy refuses '${value:0:16}'" \
			refuses wbt_policy "$value" "Invalid argument"
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

# flips() - change everything next to readers and a writer
flips() {
	local i value
	for ((i = 0; i < 4; i++)); do
		for value in requests bytes; do
			takes wbt_policy "$value" || return
			sleep .02
		done
		takes wbt_lat_usec $((1000 + i)) || return
		for value in mq-deadline none; do
			takes scheduler "$value" || return
			sleep .02
		done
	done
}

# write_on() - until the changes are over; fails as dd does
write_on() {
	until [ -e "$WB_OUT/changed" ]; do
		dd if=/dev/zero of="$MNT/write" bs=1M count=16 conv=fsync,notrunc || return
	done
}

test_flips() {
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

# bound_results(label, [merged]) - four results for the load before; bios that
# are merged may get as long as the limit
bound_results() {
	local label=$1 most=max_io name ran=1 behind=1 within=1 small=1
	[ "${2:-}" != merged ] || most=limit
	for name in "${DISK_LOWER[@]}"; do
		measure "$name"
		note "$label: $name: limit ${SEEN[limit]}, max_io ${SEEN[max_io]};" \
			"${SEEN[reads]} reads, ahead at most ${SEEN[ahead]};" \
			"${SEEN[writes]} writes, ${SEEN[sync]} of ${SEEN[bytes]} bytes sync, largest ${SEEN[largest]}, peak ${PEAK[$name]};" \
			"rate at most ${SEEN[rate_max]}, ${SEEN[active]} windows"
		[[ ${SEEN[active]} -ge $WINDOWS_MIN && ${SEEN[reads]} -ge 50 ]] || ran=0
		[ "${SEEN[ahead]}" -le $((SEEN[limit] + SEEN[max_io])) ] || behind=0
		[ "${PEAK[$name]}" -le $((SEEN[limit] + SEEN[max_io])) ] || within=0
		[ "${SEEN[largest]}" -le "${SEEN[$most]}" ] || small=0
	done
	check "$label: readers were active in $WINDOWS_MIN windows" [ "$ran" = 1 ]
	check "$label: a read arrives behind no more than the limit and a request" [ "$behind" = 1 ]
	check "$label: nor is there ever more in the disk" [ "$within" = 1 ]
	check "$label: no write is larger than $most" [ "$small" = 1 ]
}

test_bound() {
	local limit max_io
	fresh fifo xfs none ""
	load "$MNT/write" "$LOAD_MIB"
	bound_results "fifo"
	limit=${SEEN[limit]} max_io=${SEEN[max_io]}
	check "fifo: the highest rate is that of the link, to 25 %" \
		holds "${SEEN[rate_max]} >= .75 * 450e6 && ${SEEN[rate_max]} <= 1.25 * 450e6"

	queue_set wbt_policy requests
	load "$MNT/write" "$LOAD_MIB"
	measure "$DISK_NAME"
	note "control: ahead at most ${SEEN[ahead]}, peak ${PEAK[$DISK_NAME]}, largest ${SEEN[largest]}"
	check "control, by requests: $CONTROL_FACTOR times that bound is ahead of a read" \
		[ "${SEEN[ahead]}" -gt $((CONTROL_FACTOR * (limit + max_io))) ]
	check "control: there are requests larger than max_io" [ "${SEEN[largest]}" -gt "$max_io" ]
	check "control: no window of throttling by bytes" [ "${SEEN[windows]}" = 0 ]
	queue_set wbt_policy bytes
	# At first the limit doubles, which the events, one in 25 ms, do not show.
	dd if=/dev/zero of="$MNT/write" bs=1M count=8 conv=notrunc,fdatasync status=none
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
	# The scheduler merges what waits in it.
	bound_results "sata, ext4, mq-deadline" merged
	disk_teardown

	fresh_raw fifo
	queue_set scheduler mq-deadline
	load "$DISK_DEV" "$RAW_MIB"
	bound_results "fifo, bios of 4 KiB, mq-deadline" merged
	check "fifo, bios of 4 KiB: they are merged to $((MERGED / 1024)) KiB in the mean" \
		[ "${SEEN[bytes]}" -ge $((SEEN[writes] * MERGED)) ]
	disk_teardown
}

# test_stack(kind) - the disk below
test_stack() {
	local why results=4
	OPT+=([disk]=fifo [stack]=$1 [dir]="")
	why=$(
		skip_all() { echo "$*"; exit; }
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
	# A stripe makes bios of its chunk, and what is left of them is merged.
	bound_results "fifo below $1" "$([ "$1" != raid0 ] || echo merged)"
	disk_teardown
}

# ---- small bios ------------------------------------------------------------

# The page cache of a disk sends a bio for each page. On a disk where each request
# costs much, time tells whether they still are merged.
test_raw() {
	local policy from to
	local -A took=()
	fresh_raw usb
	for policy in requests bytes; do
		queue_set wbt_policy "$policy"
		set_dirty background_bytes $((FLUSH_MIB * MIB))
		readers_run --name=reader --rate_process=poisson --rate_iops="$STICK_IOPS"
		now_us from
		dd if=/dev/zero of="$DISK_DEV" bs=1M count="$STICK_MIB" conv=notrunc,fsync status=none ||
			note "dd failed"
		now_us to
		readers_stop
		took[$policy]=$((to - from))
	done
	note "stick, bios of 4 KiB: ${took[requests]} us by requests, ${took[bytes]} by bytes"
	metric bytes_raw "$(calc "${took[bytes]} / ${took[requests]}")"
	check "stick, bios of 4 KiB: no slower than by requests, to $RAW_PERCENT %" \
		[ $((took[bytes] * 100)) -le $((took[requests] * (100 + RAW_PERCENT))) ]
	disk_teardown
}

# ---- few tags --------------------------------------------------------------

# All tags may be writes when a read comes. One of them is done, and the read has its
# tag: at most one is sent meanwhile. A second reader could take it, that comes at
# that moment and has not waited. But if the CPU is busy for longer than the writes
# take, all tags are free before the reader runs, and each may go to a write. That is
# so for few. With one tag, a write that was in line before the read would be the one
# that passes it: every time, not just when the log is written, which is not held.
declare -Ar PASSED_PERCENT=([1]=5 [2]=1)
readonly TAGS_MIB=256
# Of a request, or with one tag a read would wait longer where folios are large.
readonly TAGS_KIB=512

# passed() - reads, the most writes that pass one of them between its submission and
# the disk, and how many are passed at all
passed() {
	events | awk '
		$1 == "block_bio_queue" && $5 ~ /^R/ { came[$6] = writes; next }
		$1 != "wbdisk_queue" { next }
		$5 == "write" { writes++ }
		$5 == "read" && $6 in came {
			reads++
			passed += writes > came[$6]
			if (writes - came[$6] > most) most = writes - came[$6]
			delete came[$6]
		}
		END { print reads + 0, most + 0, passed + 0 }'
}

# Without a scheduler, which would decide by itself, and with a reader that does not
# run before everybody else.
test_tags() {
	local tags=$1 reads most passed READER_FIRST=()
	fresh fifo xfs none "" link_mbps=150 latency_ns=150000 queue_depth="$tags"
	queue_set max_sectors_kb $TAGS_KIB
	set_dirty background_bytes $((FLUSH_MIB * MIB))
	readers_run --name=reader --rate_process=poisson
	trace_disks
	dd if=/dev/zero of="$MNT/write" bs=1M count="$TAGS_MIB" status=none
	sync
	readers_stop
	read -r reads most passed < <(passed)
	note "tags $tags: of $reads reads, $passed are passed by a write, none by more than $most"
	[ "$tags" = 1 ] || metric bytes_passed "$most"
	check "tags $tags: somebody reads" [ "$reads" -ge 500 ]
	check "tags $tags: no more than $tags writes pass a read" [ "$most" -le "$tags" ]
	check "tags $tags: at most ${PASSED_PERCENT[$tags]} % of the reads are passed" \
		[ $((passed * 100)) -le $((reads * PASSED_PERCENT[$tags])) ]
	disk_teardown
}

# ---- somebody comes now and then -------------------------------------------

# rare(kind) - of each of 4 KiB: how many bytes of writes were ahead of it
rare() {
	events | awk -v kind="$1" '$1 == "wbdisk_queue" && $5 == kind && $6 != "fua" && $8 == 4096 { print $10 }'
}

# came(kind) - was there one?
came() {
	[ -n "$(rare "$1")" ]
}

# The file has its blocks, and is no longer than it was: nothing else is written at once.
test_rare() {
	local kind policy count most
	fresh fifo xfs none "" link_mbps="$SLOW_MBPS"
	set_dirty background_bytes "$MIB"
	for kind in read write; do
		for policy in requests bytes; do
			queue_set wbt_policy "$policy"
			sync
			trace_clear
			fio_start --name=rare --rw="rand$kind" --rate_iops=1 --runtime=8s
			# Who comes for the first time finds what is there without him.
			loop_until came "$kind"
			start dd if=/dev/zero of="$MNT/write" bs=1M count="$RARE_MIB" conv=notrunc
			wait
			read -r count most < <(rare "$kind" |
				awk '$1 > most { most = $1 } END { print NR, most + 0 }')
			if [ "$policy" = requests ]; then
				check "rare: with requests, a $kind finds more than $RARE_AHEAD bytes" \
					[ "$most" -gt "$((CONTROL_FACTOR * RARE_AHEAD))" ]
				continue
			fi
			if [ "$kind" = read ]; then
				metric bytes_rare_read "$most"
			else
				metric bytes_rare_write "$most"
			fi
			check "rare: none of at least $RARE_MIN ${kind}s finds more than $RARE_AHEAD bytes" \
				holds "$count >= $RARE_MIN && $most <= $RARE_AHEAD"
		done
	done
	sync
	disk_teardown
}

# think(var) - the median read of a run, us; nothing if there were few
think() {
	local -A V=()
	fresh sata xfs none "" write_buffer_kib=16384 channels=1 dies_per_channel=2 prog_kib=64 t_prog_ns=2000000
	set_dirty background_bytes "$MIB"
	start dd if=/dev/zero of="$MNT/write" bs=1M count="$THINK_MIB"
	fio_start --name=think --rate_iops=200 --thinktime=2s --thinktime_blocks=20 --runtime=14s \
		--output-format=json --output="$WB_OUT/think.json"
	wait
	fio_values "$WB_OUT/think.json" V
	note "think: ${V[ios]:-0} reads, median ${V[p50]:-0} us, p90 ${V[p90]:-0} us"
	sync
	disk_teardown
	[ "${V[ios]:-0}" -lt 40 ] || printf -v "$1" '%s' "${V[p50]}"
}

# Flash that takes 0.26 s for what its buffer hides. Whoever thinks for a while finds it
# full, once: what is late when nobody reads any more is not late for another reason.
test_think() {
	local i median all=()
	for ((i = 0; i < THINK_RUNS; i++)); do
		median=
		think median
		all+=("${median:-1e9}")
	done
	median=$(printf '%s\n' "${all[@]}" | sort -g | sed -n "$((THINK_RUNS / 2 + 1))p")
	metric bytes_think "$median"
	check "think: the median read of a burst takes no more than $THINK_US us" \
		holds "$median <= $THINK_US"
}

# ---- nobody reads ----------------------------------------------------------

# The next read comes behind all of it, and so do another cgroup's writes. The flusher
# does it all, and nobody waits for that, else both would use nearly all tags.
test_alone() {
	local policy
	local -A peak=()
	fresh fifo xfs none "" link_mbps="$ALONE_MBPS"
	set_dirty bytes $((ALONE_MIB * 8 * MIB))
	set_dirty background_bytes "$MIB"
	for policy in requests bytes; do
		queue_set wbt_policy "$policy"
		sleep "$((LEAVE_MS / 1000 + 1))"
		stats_reset
		dd if=/dev/zero of="$MNT/write" bs=1M count="$ALONE_MIB" conv=notrunc status=none
		sleep "$((ALONE_MIB / ALONE_MBPS + 2))"
		peak[$policy]=$(wbdisk_stat test inflight_write_peak_bytes)
		sync
	done
	note "in the disk: ${peak[requests]} bytes by requests, ${peak[bytes]} by bytes"
	metric bytes_alone "$(calc "${peak[bytes]} / ${peak[requests]}")"
	check "alone: the flusher has as much in the disk as by requests" \
		[ "${peak[bytes]}" -le "${peak[requests]}" ]
	disk_teardown
}

# ---- readers leave and come ------------------------------------------------

test_leave() {
	local limit max_io leave obey largest peak room
	fresh fifo xfs none "" link_mbps=150
	set_dirty background_bytes "$MIB"
	trace_clear
	# With those who read a while ago, without, and with readers again.
	fio_start --name=first --runtime=600ms \
		--name=second --startdelay="$((600 + LEAVE_MS + 800))ms" --runtime=500ms
	sleep "$((READER_MS / 1000))"
	stats_reset
	start dd if=/dev/zero of="$MNT/write" bs=1M count=360
	wait
	peak=$(wbdisk_stat test inflight_write_peak_bytes)
	# As many as by requests: what was held must not take the next reader's tag.
	room=$(($(bytes_get "$DISK_NAME" tags) * $(queue_get max_sectors_kb) * 1024 * 3 / 4))
	check "leave: without readers writes have no more than three quarters of the tags" \
		holds "$peak <= $room"
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
	metric bytes_leave "$leave"
	metric bytes_obey "$obey"
	check "leave: who read $READER_MS ms ago does not wait for more than the bound" \
		holds "$leave >= $READER_MS - 2"
	check "leave: without readers there is more than the bound after $LEAVE_MS ms" \
		holds "$leave <= $LEAVE_MS"
	check "leave: from the first read on, no write enters that does not fit" \
		holds "$obey <= $OBEY_MS"
	note "largest request 300 ms after that: $largest"
	check "leave: and then they are small again" holds "$largest > 0 && $largest <= $max_io"
	sync
	disk_teardown
}

# ---- large bios ------------------------------------------------------------

# Where folios are large, a bio can have many MiB: a count of bios bounds nothing. What
# is held is memory that its cgroup cannot have back.
test_held() {
	local held most=0 tags room largest
	fresh fifo xfs none "" link_mbps="$HELD_MBPS"
	set_dirty background_bytes "$MIB"
	set_dirty bytes $((HELD_FILE_MIB * MIB))
	readers_start
	tags=$(bytes_get "$DISK_NAME" tags)
	trace_disks
	start dd if=/dev/zero of="$MNT/write" bs=1M count="$HELD_FILE_MIB" status=none
	while [ -e "/proc/$STARTED" ]; do
		held=$(bytes_get "$DISK_NAME" held_bytes)
		most=$((held > most ? held : most))
		sleep .02
	done
	readers_stop
	room=$((tags * 3 / 4 > 16 ? tags * 3 / 4 : 16))
	largest=$(events | awk '$1 == "block_bio_queue" && $8 > most { most = $8 } END { print most * 512 }')
	note "the largest bio has $largest bytes"
	metric bytes_held "$most"
	check "held: no more than $HELD_MIB MiB for each of $room writes, and one bio" \
		[ "$most" -le $((room * HELD_MIB * MIB + largest)) ]
	check "held: something was" [ "$most" -gt 0 ]
	sync
	disk_teardown
}

# ---- main ------------------------------------------------------------------

bytes_begin wbt-bytes
ktap_set_plan 86
test_sysfs
test_flips
test_bound
test_stack linear
test_stack raid0
test_raw
test_tags 2
test_tags 1
test_rare
test_think
test_alone
test_leave
test_held
check_dmesg
ktap_finished
