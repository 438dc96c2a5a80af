#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Whom writeback throttling by bytes (wbt_policy) lets pass:
#	sync	a small write that someone waits for passes what is held back
#	fair	the background goes on beside such writes
#	small	also if they are small, and so many as there is always room for
#	scattered	or more, and the background writes single pages
#	large	such a write passes a large one that is waited for, too, which goes on
#	gone	what is let go after the last reader does not keep a scheduler from sending it
#	direct	O_DIRECT writes are not held back, nor split
#	swap	nor is swap held back
#
# The order is that of trace events: bios that arrive, requests that are sent.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/by-bytes.sh
. "$WB_DIR/lib/by-bytes.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"
# shellcheck source=../lib/dirty.sh
. "$WB_DIR/lib/dirty.sh"

readonly BACKLOG_WRITERS=4 BACKLOG_MIB=8
readonly FSYNCS=10 FSYNC_PASSED_BY=4
readonly SYNC_TASKS=4 SYNC_MS=600 LARGE_SYNC_MIB=8
# What its fsync has to write takes longer than the small ones do.
readonly BIG_MIB=32 BIG_REQUEST=65536
# More than are counted at once, on a disk so slow that they always wait for it. In so
# long the large one has a fifth of it.
readonly CROWD_TASKS=48 CROWD_TAGS=32 CROWD_MBPS=4 CROWD_MIB=8 CROWD_S=11
# More than fit into what a slow disk is given: two requests of 64 KiB, or twice that.
readonly SMALL_TASKS=5 SMALL_KIB=32 SMALL_LIMIT=262144 SMALL_MS=600 SMALL_GAP_MS=100
# By requests it is 0.1 MB/s, and 0.4 if each turn is one write; the number of writes
# that are counted bounds it.
readonly SCATTERED_TASKS=16 SCATTERED_MBPS=.7
# 36 requests may be held, 1.25 MiB each. By requests 24 are sent: 1.5 s at 20 MB/s.
readonly GONE_MIB=320 GONE_HELD=40 GONE_KIB=64 GONE_MS=1700
readonly DIRECT_MIB=4 SWAP_MIB=32 SWAP_MEMORY_MIB=16 SWAPPED_MIB=24
# Swap waits for swap, as there are only so many requests for it (stock's max_depth):
# a few background writes are issued in that time.
readonly SWAP_PASSED_BY=4

about title "throttling by bytes: who passes what is held back, and who is exempt"
about replays "none: tests wbt_policy=bytes; skips on a kernel without it"
about programs mkswap
about kernel SWAP CGROUPS MEMCG BLK_CGROUP
about series
about not_fast "where fio, which spins while it waits, takes minutes"
measures 'bytes_sync_passed_by_X, bytes_swap_passed_by' requests lower \
	"background writes sent between such a write's arrival and its request"
measures 'bytes_sync_wait_max_X, bytes_direct_wait_max' ms lower "longest time between the two"
measures bytes_large_passed_by requests lower \
	"writes of a large fsync sent between a small one's arrival and its request"
measures bytes_large_wait_max ms lower "longest time between the two"
measures bytes_large_mbps MB/s higher "the large one beside tasks that fsync all the time"
measures bytes_crowd_s s lower \
	"fsync of 8 MiB beside 48 tasks that overwrite and sync 4 KiB, 4 MB/s; at most 11"
measures bytes_gone_wait ms lower \
	"write of 64 KiB with O_DIRECT through mq-deadline, just after nobody reads any more"
measures bytes_background_mbps MB/s higher \
	"background writes beside tasks that fsync all the time"
measures bytes_sync_writes requests - "writes of these tasks"
measures bytes_beside_small_mbps MB/s higher \
	"the background beside 5 tasks that sync 32 KiB, disk of 20 MB/s"
measures bytes_beside_small_gap_max ms lower "longest time without a background write beside them"
measures bytes_scattered_mbps MB/s higher "the same beside 16 tasks, if it writes every second page"
measures bytes_small_syncs requests - "writes of these tasks"
measures bytes_background_share percent - \
	"share of the background beside the sync of a large file"
case_parse "$@"

# no_flusher() - it stays out of it: tasks write, and know what
no_flusher() {
	set_dirty background_ratio 50
	set_dirty ratio 60
}

# ---- the backlog -----------------------------------------------------------

# backlog_start() - several tasks write in the background until the disk has more
# than it takes
backlog_start() {
	local i
	for ((i = 0; i < BACKLOG_WRITERS; i++)); do
		dirty "$MNT/background$i" $((BACKLOG_MIB * 1024))
	done
	background_start "$BACKLOG_WRITERS" "$BACKLOG_MIB"
}

# scattered_start() - the same with every second page of them
scattered_start() {
	local i
	for ((i = 0; i < BACKLOG_WRITERS; i++)); do
		fio --name=scattered --filename="$MNT/background$i" --rw=write:4k --bs=4k \
			--size="${BACKLOG_MIB}m" --io_size="$((BACKLOG_MIB / 2))m" > /dev/null ||
			die "cannot write $MNT/background$i"
	done
	background_start "$BACKLOG_WRITERS" "$BACKLOG_MIB"
}

backlog_wait() {
	wait "${BACKGROUND_PIDS[@]}"
}

# backlog_there() - is some of it still held back?
backlog_there() {
	holds "$(bytes_get "$DISK_NAME" held_bytes) > 0"
}

# passed(first, last, [flags]) - of the write bios to these sectors: how many; how
# many others with these flags, else of the background, were issued between the arrival
# of one and the request with it, at most; and the longest time of that, ms
passed() {
	events | awk -v first="$1" -v last="$2" -v flags="${3:-W}" '
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
		$1 == "block_rq_issue" && $5 == flags { others++ }
		END { printf "%d %d %.3f\n", n, most, wait * 1000 }'
}

# sectors(file) - first and last one of a file with a single extent
sectors() {
	xfs_io -c bmap "$1" | awk '
		$2 ~ /^\[/ && $3 ~ /^[0-9]+\.\.[0-9]+$/ { n++; split($3, s, /\.\./) }
		END { if (n == 1) print s[1], s[2] + 0 }' | grep .
}

# test_sync(scheduler) - of fdatasync no log writes are part
test_sync() {
	local i first last n most ms label="sync, $1" suffix="_${1//-/_}"
	fresh fifo xfs none ""
	queue_set scheduler "$1"
	lay_out idle 1
	read -r first last < <(sectors "$MNT/idle") || die "no extent of $MNT/idle"
	slow_down
	readers_start
	backlog_start
	sleep .1
	trace_clear
	check "$label: background writes are held back" holds "$(bytes_get "$DISK_NAME" held_bytes) > 0"
	for ((i = 0; i < FSYNCS; i++)); do
		dd if=/dev/zero of="$MNT/idle" bs=4k count=1 conv=notrunc,fdatasync status=none
	done
	check "$label: the backlog outlasts the syncs" backlog_there
	read -r n most ms < <(passed "$first" "$last")
	metric "bytes_sync_passed_by$suffix" "$most"
	metric "bytes_sync_wait_max$suffix" "$ms"
	check "$label: all $FSYNCS syncs wrote" [ "$n" -eq "$FSYNCS" ]
	check "$label: at most $FSYNC_PASSED_BY background writes go before one" \
		[ "$most" -le "$FSYNC_PASSED_BY" ]
	readers_stop
	backlog_wait
	sync
	disk_teardown
}

# issued(flags) - bytes of the write requests with such flags
issued() {
	events | awk -v rwbs="$1" '$1 == "block_rq_issue" && $5 == rwbs { n += $6 } END { print n + 0 }'
}

# issued_more(flags, bytes)
issued_more() {
	[ "$(issued "$1")" -gt "$2" ]
}

# fio_syncs(bytes, fio's option...) - tasks that sync 4 KiB all the time, which have
# written more than so much; readers_stop() ends them
fio_syncs() {
	start fio --thread --clocksource=clock_gettime --time_based --runtime=600 \
		--randseed="${OPT[seed]}" --name=sync --rw=randwrite --bs=4k "${@:2}"
	READERS_PID=$STARTED
	loop_until issued_more WS "$1" || die "nothing syncs: $(tail -n 1 "$WB_OUT/tasks.err")"
}

# syncs_start() - beyond the first contents of their files
syncs_start() {
	fio_syncs $((2 * SYNC_TASKS * MIB)) --directory="$MNT" --size=1m --fsync=1 --numjobs="$SYNC_TASKS"
}

# The background next to nothing but writes that someone waits for.
test_fair() {
	local mbps bytes syncs
	fresh fifo xfs none ""
	lay_out large "$LARGE_SYNC_MIB"
	slow_down
	syncs_start
	backlog_start
	trace_clear
	sleep "$(calc "$SYNC_MS / 1e3")"
	bytes=$(issued W)
	syncs=$(events | grep -c '^block_rq_issue.* WS ')
	readers_stop
	mbps=$(calc "$bytes / $SYNC_MS / 1e3")
	metric bytes_background_mbps "$mbps"
	metric bytes_sync_writes "$syncs"
	check "fair: the background goes on beside $SYNC_TASKS tasks that fsync" \
		holds "$mbps >= $SLOW_MBPS / 4 && $syncs > 10 * $SYNC_TASKS"
	backlog_wait
	sync

	# A large one: no limit in bytes lets it pass.
	dirty "$MNT/large" $((LARGE_SYNC_MIB * 1024))
	readers_start
	backlog_start
	sleep .1
	trace_clear
	sync -d "$MNT/large"
	check "fair: the backlog outlasts a large sync" backlog_there
	bytes=$(issued W)
	metric bytes_background_share "$(calc "100 * $bytes / ($bytes + $(issued WS) + 1)")"
	check "fair: nor does that stop it" holds "$bytes > $LARGE_SYNC_MIB * $MIB / 64"
	readers_stop
	backlog_wait
	sync
	disk_teardown
}

# longest_gap(flags) - time in which no write request with such flags was issued but
# others were, ms
longest_gap() {
	events | awk -v rwbs="$1" '
		$1 != "block_rq_issue" { next }
		!since { since = $2 }
		$2 - since > gap { gap = $2 - since }
		$5 == rwbs { since = $2 }
		END { printf "%.1f\n", gap * 1000 }'
}

# small_limit() - do they run, and is there no room for more than them?
small_limit() {
	[[ $(events | grep -c '^block_rq_issue.* WS ') -gt $((10 * SMALL_TASKS)) &&
		$(bytes_get "$DISK_NAME" limit) -le $SMALL_LIMIT ]]
}

# small_measure() - what the background and these tasks write, in mbps and syncs
small_measure() {
	sleep .1
	trace_clear
	sleep "$(calc "$SMALL_MS / 1e3")"
	mbps=$(calc "$(issued W) / $SMALL_MS / 1e3")
	syncs=$(events | grep -c '^block_rq_issue.* WS ')
}

# small_start(tasks) - on a slow disk, which the kernel knows for one
small_start() {
	local i
	fresh fifo xfs none "" write_cache=0
	for ((i = 0; i < $1; i++)); do
		lay_out "small.$i.0" 1	# as fio names them
	done
	slow_down
	trace_clear
	start fio --thread --clocksource=clock_gettime --time_based --runtime=600 \
		--name=small --directory="$MNT" --size=1m --rw=write --bs="${SMALL_KIB}k" \
		--overwrite=1 --fdatasync=1 --numjobs="$1"
	READERS_PID=$STARTED
	# Until the kernel has forgotten how fast the disk was.
	loop_until small_limit ||
		die "they do not run, or the limit stays at $(bytes_get "$DISK_NAME" limit)"
}

# The background beside small writes that there are always some of.
test_small() {
	local mbps gap syncs
	small_start "$SMALL_TASKS"
	backlog_start
	small_measure
	gap=$(longest_gap W)
	check "small: the backlog outlasts the measurement" backlog_there
	readers_stop
	metric bytes_beside_small_mbps "$mbps"
	metric bytes_beside_small_gap_max "$gap"
	metric bytes_small_syncs "$syncs"
	check "small: $SMALL_TASKS tasks that sync $SMALL_KIB KiB leave the background an eighth" \
		holds "$mbps >= $SLOW_MBPS / 8 && $syncs > 10 * $SMALL_TASKS"
	check "small: and never keep it out for $SMALL_GAP_MS ms" holds "$gap < $SMALL_GAP_MS"
	backlog_wait
	sync
	disk_teardown
}

# The background's writes are shorter than those of the tasks, so it has more turns.
test_scattered() {
	local mbps syncs
	small_start "$SCATTERED_TASKS"
	scattered_start
	small_measure
	check "scattered: the backlog outlasts the measurement" backlog_there
	readers_stop
	metric bytes_scattered_mbps "$mbps"
	check "scattered: $SCATTERED_TASKS tasks that sync $SMALL_KIB KiB leave it $SCATTERED_MBPS MB/s" \
		holds "$mbps >= $SCATTERED_MBPS && $syncs > $SCATTERED_TASKS"
	backlog_wait
	sync
	disk_teardown
}

# issued_large() - bytes of sync writes that no small one is part of
issued_large() {
	events | awk -v least="$BIG_REQUEST" '
		$1 == "block_rq_issue" && $5 == "WS" && $6 >= least { n += $6 }
		END { print n + 0 }'
}

# big_sync(MiB) - start the fsync of so much of a large file
big_sync() {
	dirty "$MNT/big" $(($1 * 1024))
	start sync -d "$MNT/big"
	BIG=$STARTED
}

# big_start() - while somebody reads, so that it is held
big_start() {
	big_sync "$BIG_MIB"
	loop_until backlog_there || die "nothing of the large file is held back"
}

# As a database's log beside its checkpoint.
test_large() {
	local i first last n most ms mbps BIG
	fresh fifo xfs none ""
	lay_out idle 1
	read -r first last < <(sectors "$MNT/idle") || die "no extent of $MNT/idle"
	lay_out big "$BIG_MIB"
	slow_down
	readers_start
	big_start
	trace_clear
	for ((i = 0; i < FSYNCS; i++)); do
		dd if=/dev/zero of="$MNT/idle" bs=4k count=1 conv=notrunc,fdatasync status=none
	done
	check "large: its fsync outlasts the small ones" backlog_there
	read -r n most ms < <(passed "$first" "$last" WS)
	metric bytes_large_passed_by "$most"
	metric bytes_large_wait_max "$ms"
	check "large: at most $FSYNC_PASSED_BY of its writes go before one of $FSYNCS small ones" \
		holds "$n == $FSYNCS && $most <= $FSYNC_PASSED_BY"
	wait "$BIG"
	readers_stop

	syncs_start
	big_start
	trace_clear
	sleep "$(calc "$SYNC_MS / 1e3")"
	mbps=$(calc "$(issued_large) / $SYNC_MS / 1e3")
	metric bytes_large_mbps "$mbps"
	check "large: its fsync goes on beside $SYNC_TASKS tasks that fsync" \
		holds "$mbps >= $SLOW_MBPS / 4"
	readers_stop
	wait "$BIG"
	sync
	disk_teardown
}

# What is small passes, but does not keep others out: also if it takes all that is
# counted, and comes again at once.
test_crowd() {
	local start end BIG
	fresh fifo xfs none "" queue_depth="$CROWD_TAGS"
	lay_out log 4
	lay_out big "$CROWD_MIB"
	wbdisk_set test link_mbps "$CROWD_MBPS"
	trace_clear
	# They have all places for some time.
	fio_syncs $((CROWD_MBPS * 200000)) --filename="$MNT/log" --size=4m --sync=dsync --numjobs="$CROWD_TASKS"
	big_sync "$CROWD_MIB"
	now_us start
	for ((end = start; end < start + CROWD_S * 1000000; )); do
		kill -0 "$BIG" 2> /dev/null || break
		sleep .1
		now_us end
	done
	metric bytes_crowd_s "$(calc "($end - $start) / 1e6")"
	check "crowd: a large fsync ends in $CROWD_S s beside $CROWD_TASKS tasks that sync 4 KiB" \
		[ "$end" -lt $((start + CROWD_S * 1000000)) ]
	readers_stop
	wait "$BIG"
	sync
	disk_teardown
}

# held_more(bytes)
held_more() {
	holds "$(bytes_get "$DISK_NAME" held_bytes) > $1"
}

# nobody_reads() - for the kernel, which waits for 5 s
nobody_reads() {
	[ "$(bytes_get "$DISK_NAME" active)" -eq 0 ]
}

# backlog_left() - is a part still held, and enough dirty to be sent behind it?
backlog_left() {
	held_more $((GONE_HELD * MIB / 4)) && [ "$(dirty_bytes)" -ge $((GONE_MIB * MIB / 4)) ]
}

# A scheduler sends in the order of sectors: what it has more of than the disk has tags
# can go before a write for 5 s, as long as there is more.
test_gone() {
	local start end ms
	fresh fifo xfs none ""
	queue_set scheduler mq-deadline
	lay_out idle 1
	slow_down
	set_dirty background_bytes "$MIB"
	set_dirty bytes $((2 * GONE_MIB * MIB))
	readers_start
	start dd if=/dev/zero of="$MNT/gone" bs=1M count="$GONE_MIB" status=none
	loop_until held_more $((GONE_HELD * MIB)) || die "too little is held back"
	readers_stop
	loop_until nobody_reads || die "somebody still reads"
	check "gone: the backlog outlasts the readers" backlog_left
	sleep .1
	now_us start
	dd if=/dev/zero of="$MNT/idle" bs="${GONE_KIB}k" count=1 oflag=direct conv=notrunc status=none
	now_us end
	ms=$(calc "($end - $start) / 1e3")
	metric bytes_gone_wait "$ms"
	check "gone: a write waits for as many as are sent by requests" holds "$ms <= $GONE_MS"
	wbdisk_set test link_mbps 1000
	sync
	disk_teardown
	no_flusher
}

# ---- what is exempt --------------------------------------------------------

test_direct() {
	local pid n most least ms first last
	fresh fifo xfs none "" max_segments=1024
	lay_out direct "$DIRECT_MIB"
	read -r first last < <(sectors "$MNT/direct") || die "no extent of $MNT/direct"
	slow_down
	readers_start
	backlog_start
	sleep .1
	trace_clear
	start dd if=/dev/zero of="$MNT/direct" bs=1M count="$DIRECT_MIB" oflag=direct conv=notrunc
	pid=$STARTED
	wait "$pid"
	check "direct: the backlog outlasts it" backlog_there
	read -r n most ms < <(passed "$first" "$last")
	metric bytes_direct_wait_max "$ms"
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
swap_out() {
	cgroup_create swap "${SWAP_MEMORY_MIB}M" || return
	# Zeroes are not written.
	cgroup_run swap yes calm |
		cgroup_run swap dd of="$WB_OUT/swapped/data" bs=64k count=$((SWAPPED_MIB * 16)) iflag=fullblock
} 2>> "$WB_OUT/tasks.err"

test_swap() {
	local n most ms first last
	if ! cgroups_enable memory; then
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
	trace_clear
	swap_out
	check "swap: the backlog outlasts it" backlog_there
	read -r n most ms < <(passed "$first" "$last")
	metric bytes_swap_passed_by "$most"
	note "swap: $n bios, longest wait $ms ms"
	check "swap: it is not held back" holds "$n > 100 && $most <= $SWAP_PASSED_BY"
	readers_stop
	backlog_wait
	umount_fs "$WB_OUT/swapped"
	swap_off "$MNT/swap"
	disk_teardown
}

# ---- main ------------------------------------------------------------------

bytes_begin wbt-order
ktap_set_plan 28
no_flusher
set_dirty writeback_centisecs 0
test_sync none
test_sync mq-deadline
test_fair
test_small
test_scattered
test_large
test_crowd
test_gone
test_direct
test_swap
check_dmesg
ktap_finished
