#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The modelled disk itself: does it keep time, data and its promises, and does
# it survive what tests do to it?
#
# Times are taken from the tracepoint wbdisk_complete and the fastest of several
# commands counts, so that a busy machine does not fail them.

. "$(dirname "$0")/../lib/functions.sh"

readonly TRACE=/sys/kernel/tracing
readonly MIB=1048576

about title "the modelled disk itself: attributes, timing, faults, power cut, removal in use"
about replays "none: tests the test module"
about wall 60
about programs fio jq blkdiscard cmp
measures read_us_X us - "fastest read of 64 KiB from profile X"
measures write_mbps_X MB/s higher "writes to it"
case_parse "$@"
wb_begin
need_wbdisk

# ---- tools -----------------------------------------------------------------

# fresh(profile, [attribute=value...]) - disk "a", the only one, with zeroed data
fresh() {
	wbdisk_destroy a
	wbdisk_create a "$1" "seed=${OPT[seed]}" "${@:2}"
}

# dread/dwrite(offset in KiB, length in KiB, [disk]) - one O_DIRECT command per
# 1024 KiB; dwrite takes its data from stdin or the file PATTERN
PATTERN=$WB_OUT/pattern
dread() {
	dd if="/dev/wbd-${3:-a}" bs=4k skip=$(($1 / 4)) count=$(($2 / 4)) \
		iflag=direct status=none 2> "$WB_OUT/err"
}

dwrite() {
	dd if="$PATTERN" of="/dev/wbd-${3:-a}" bs="$2k" count=1 iflag=fullblock \
		oflag=direct seek="$1k" oflag=seek_bytes conv=notrunc status=none \
		2> "$WB_OUT/err"
}

# dwrites(n) - 1 MiB to the same place n times
dwrites() {
	local i
	for ((i = 0; i < $1; i++)); do
		dwrite 0 1024
	done
}

# same(offset in KiB, length in KiB, [disk]) - does the disk hold the pattern there?
same() {
	dread "$1" "$2" "${3:-a}" | cmp -s - <(head -c "$2k" "$PATTERN")
}

zero() {
	dread "$1" "$2" "${3:-a}" | cmp -s - <(head -c "$2k" /dev/zero)
}

not() {
	! "$@"
}

# fails_with(text, cmd...) - does cmd fail, with this in its message?
fails_with() {
	local text=$1
	shift
	if "$@" > /dev/null; then
		note "did not fail: $*"
		return 1
	fi
	grep -q "$text" "$WB_OUT/err" && return 0
	note_file "$WB_OUT/err"
	return 1
}

# fastest(op, cmd...) - run cmd, print the least ns that an op took in the disk
fastest() {
	local op=$1
	shift
	echo > "$TRACE/trace"
	"$@" > /dev/null || return
	awk -v op="$op" '
		/ wbdisk_complete: / {
			for (i = 1; $i != "wbdisk_complete:"; i++)
				;
			if ($(i + 2) == op && (!n++ || $(i + 8) < min))
				min = $(i + 8)
		}
		END { if (n) printf "%.0f\n", min }' "$TRACE/trace"
}

# takes(description, expected ns, op, cmd...) - within 1 %, and not too fast
#	An emulated machine's timer interrupt may be 0.1 ms late.
takes() {
	local ns description=$1 expected=$2
	shift 2
	ns=$(fastest "$@")
	note "$description: ${ns:-nothing} ns, expected $expected ns"
	check "$description" holds "${ns:-0} >= $expected && ${ns:-0} <= $expected * 1.01 + 1e5"
}

# volume(disk, rw, MiB) - MB/s of 1 MiB commands, 32 at a time
volume() {
	fio --name=v --filename="/dev/wbd-$1" --rw="$2" --bs=1M --size="$3M" \
		--iodepth=32 --ioengine=libaio --direct=1 --thread \
		--randseed="${OPT[seed]}" --clocksource=clock_gettime --output-format=json |
		jq '.jobs[0] | (.read, .write) | select(.total_ios > 0).bw_bytes / 1e6'
}

# ---- what each profile is --------------------------------------------------

looks_like() {
	local queue=/sys/block/wbd-a/queue rotational=$1 cache=$2 depth=$3
	echo none > "$queue/scheduler"
	[[ $(< "$queue/rotational") = "$rotational" &&
	   $(< "$queue/write_cache") = "write $cache" &&
	   $(< "$queue/nr_requests") = "$depth" ]] && return 0
	note "rotational $(< "$queue/rotational"), $(< "$queue/write_cache")," \
		"nr_requests $(< "$queue/nr_requests")"
	return 1
}

gone() {
	[[ ! -e /dev/wbd-a && ! -e /sys/block/wbd-a && ! -e $WBDISK_CONFIGFS/a ]]
}

# test_profile(name) - five results
test_profile() {
	local profile=$1 most mib mbps cache=through name=${1//-/_}
	fresh "$profile"
	most=$(wbdisk_get a link_mbps)
	mib=$((most / 4 < 4 ? 4 : most / 4 > 256 ? 256 : most / 4))
	[ "$(wbdisk_get a write_cache)" = 0 ] || cache=back
	check "$profile: appears" [ "$(wbdisk_get a profile)" = "$profile" ]
	check "$profile: queue limits" looks_like "$(wbdisk_get a rotational)" "$cache" "$(wbdisk_get a queue_depth)"
	dwrite 512 1024
	check "$profile: returns what was written" same 512 1024
	metric "read_us_$name" "$(calc "$(fastest read dread 65536 4) / 1000")"
	mbps=$(volume a write "$mib")
	metric "write_mbps_$name" "$mbps"
	check "$profile: no faster than its link" holds "${mbps:-0} > 0 && ${mbps:-0} <= $most * 1.02"
	wbdisk_destroy a
	check "$profile: goes away" gone
}

# ---- time ------------------------------------------------------------------

test_time() {
	# Slow, so that the latency of the machine's timer hardly matters.
	fresh fifo link_mbps=1 max_segments=1024
	takes "a 4 KiB read takes its transfer and the latency" \
		$((4096 * 1000 + 90000)) read dread 0 64
	wbdisk_set a link_mbps 20
	takes "a 1 MiB write does, at 20 times the bandwidth" \
		$((MIB * 1000 / 20 + 90000)) write dwrites 5
	wbdisk_set a link_mbps 60
	takes "and at 60 times" $((MIB * 1000 / 60 + 90000)) write dwrites 5
	check "statistics count bytes" [ "$(wbdisk_stat a write_bytes)" = $((10 * MIB)) ]
	check "nothing is left in flight" [ "$(wbdisk_stat a inflight_bytes)" = 0 ]
	check "the peak is one command" [ "$(wbdisk_stat a inflight_write_peak_bytes)" = "$MIB" ]
	check "histogram of reads" [ "$(wbdisk_get a hist_read | awk '/->/ { n += $5 } END { print n }')" -ge 16 ]
	echo 1 > "$WBDISK_CONFIGFS/a/reset_stats"
	check "statistics start anew" [ "$(wbdisk_stat a writes)" = 0 ]
}

test_stall() {
	local ns reads
	fresh fifo
	wbdisk_set a stall_ms 3000
	ns=$(fastest read dread 0 4)
	note "a read during a stall of 3000 ms took $ns ns"
	check "a stall holds completions back" holds "$ns > 1e9 && $ns < 3.1e9"
	reads=$(wbdisk_stat a reads)
	wbdisk_set a stall_ms 60000
	dread 0 4 > /dev/null &
	sleep .2
	check "time left of a stall" [ "$(wbdisk_get a stall_ms)" -gt 50000 ]
	check "nothing completes meanwhile" [ "$(wbdisk_stat a reads)" = "$reads" ]
	wbdisk_set a stall_ms 0
	wait
	check "a stall can be ended" [ "$(wbdisk_stat a reads)" = $((reads + 1)) ]
}

# ---- faults ----------------------------------------------------------------

test_faults() {
	local start end
	fresh fifo
	wbdisk_set a fail_range "write 2048 8 eio"
	check "a write into the range fails" fails_with "Input/output" dwrite 1020 8
	check "a write before it does not" dwrite 1016 8
	check "a read from it does not" zero 1024 4
	check "it is counted" [ "$(wbdisk_stat a errors_injected)" = 1 ]
	wbdisk_set a fail_range ""
	check "cleared, it works" dwrite 1020 8

	wbdisk_set a fail_nth "read 3"
	dread 0 4 > /dev/null && dread 0 4 > /dev/null
	check "two reads pass" [ $? -eq 0 ]
	check "the third fails" fails_with "Input/output" dread 0 4
	check "once" zero 0 4

	echo 500 > /sys/block/wbd-a/queue/io_timeout
	wbdisk_set a fail_nth "read 1 timeout"
	now_us start
	check "a command that hangs times out" fails_with "timed out" dread 0 4
	now_us end
	check "not before its time" [ $((end - start)) -ge 500000 ]
	check "the next one works" zero 0 4
	check "none is left behind" [ "$(wbdisk_stat a inflight_bytes)" = 0 ]
	# Slower than the timeout, but not lost.
	wbdisk_set a stall_ms 2000
	check "a stalled command outlives the timeout" zero 0 4

	fresh sata-ssd
	wbdisk_set a fail_range "flush 0 8 eio"
	check "a range from 0 has flushes" not flush
	wbdisk_set a fail_range "flush 8 8 eio"
	check "others have none" flush
} 2> /dev/null

# ---- data ------------------------------------------------------------------

test_store() {
	local seen
	fresh fifo store_mib=4
	check "data beyond store_mib is refused" fails_with "No space" dwrite 0 8192
	seen=$(dmesg_new | grep -c "store is full")
	check "with one line in the kernel log" [ "$seen" -eq 1 ]
	check "and not kept" [ "$(wbdisk_stat a stored_bytes)" -le $((4 * MIB)) ]
	check "zeroes need no room" dd if=/dev/zero of=/dev/wbd-a bs=1M count=32 \
		oflag=direct status=none
	check "and make some" [ "$(wbdisk_stat a stored_bytes)" = 0 ]
	check "so that data fits again" dwrite 0 2048
	check "2 MiB are kept" [ "$(wbdisk_stat a stored_bytes)" = $((2 * MIB)) ]
	blkdiscard -o $MIB -l $MIB /dev/wbd-a
	check "discard frees" [ "$(wbdisk_stat a stored_bytes)" = "$MIB" ]
	check "and reads as zeroes" zero 1024 1024
	check "the rest stays" same 0 1024
	blkdiscard -z -o 512 -l $((MIB - 1024)) /dev/wbd-a
	check "write zeroes spares the sectors around it" cmp -s \
		<(dread 0 1024) <(head -c 512 "$PATTERN"; head -c $((MIB - 1024)) /dev/zero
				  head -c "$MIB" "$PATTERN" | tail -c 512)
}

# Sectors, odd offsets, overlaps: the same on the disk and in a file.
test_sectors() {
	local i offset length
	fresh fifo
	truncate -s 1M "$WB_OUT/shadow"
	RANDOM=${OPT[seed]}
	for ((i = 0; i < 60; i++)); do
		offset=$((RANDOM % 1900)) length=$((RANDOM % 100 + 1))
		dd if="$PATTERN" skip=$((RANDOM % 2000)) bs=512 count=$length \
			status=none > "$WB_OUT/piece"
		dd if="$WB_OUT/piece" of=/dev/wbd-a bs=512 seek=$offset \
			oflag=direct status=none
		dd if="$WB_OUT/piece" of="$WB_OUT/shadow" bs=512 seek=$offset \
			conv=notrunc status=none
	done
	check "writes of any sectors" cmp -s <(dread 0 1024) "$WB_OUT/shadow"
}

# ---- power -----------------------------------------------------------------

power_cycle() {
	wbdisk_set a power 0
	wbdisk_set a power 1
	loop_until [ -b /dev/wbd-a ]
}

flush() {
	# fsync of a block device whose page cache is clean is one FLUSH.
	sync -d /dev/wbd-a
}

test_cut() {
	local profile=$1
	fresh "$profile" lazy_cache=1 write_cache=1
	dwrite 0 64
	flush
	check "$profile: a flush leaves nothing volatile" \
		[ "$(wbdisk_stat a volatile_bytes)" = 0 ]
	dwrite 64 64
	check "$profile: an acknowledged write is volatile" \
		[ "$(wbdisk_stat a volatile_bytes)" = 65536 ]
	check "$profile: and visible" same 64 64
	dd if="$PATTERN" of=/dev/wbd-a bs=64k count=1 seek=2 oflag=direct,dsync \
		status=none
	dwrite 192 64
	wbdisk_set a cut 1
	check "$profile: without power every command fails" fails_with "Input/output" dread 0 4
	check "$profile: cuts are counted" [ "$(wbdisk_get a cut)" = 1 ]
	power_cycle
	check "$profile: flushed data survives a power cut" same 0 64
	check "$profile: O_DSYNC data does" same 128 64
	check "$profile: unflushed data does not" zero 192 64
}

test_power() {
	local first
	fresh sata-ssd
	dwrite 0 1024
	sleep .1
	check "a drive writes its cache back by itself" [ "$(wbdisk_stat a volatile_bytes)" = 0 ]
	wbdisk_set a cut 1
	power_cycle
	check "so that it survives a power cut" same 0 1024
	dwrite 1024 1024
	power_cycle
	check "power off in good order keeps everything" same 1024 1024

	for i in 1 2; do
		fresh fifo write_cache=1 lazy_cache=1 cut_keep_ppm=500000
		dwrite 0 1024
		wbdisk_set a cut 1
		power_cycle
		dread 0 1024 > "$WB_OUT/cut$i"
	done
	first=$(wbdisk_stat a stored_bytes)
	note "$first of 1048576 bytes survived"
	check "cut_keep_ppm lets half survive" holds "$first > 300000 && $first < 750000"
	check "the same half for one seed" cmp -s "$WB_OUT/cut1" "$WB_OUT/cut2"
	fresh fifo write_cache=1 lazy_cache=1 cut_keep_ppm=500000 "seed=$((OPT[seed] + 1))"
	dwrite 0 1024
	wbdisk_set a cut 1
	power_cycle
	check "another for another" not cmp -s "$WB_OUT/cut1" <(dread 0 1024)
}

# ---- bad input -------------------------------------------------------------

refuses() {
	local before
	before=$(wbdisk_get a "$1" 2> /dev/null)
	if wbdisk_set a "$1" "$2"; then
		note "$1 took '$2'"
		return 1
	fi
	[ "$(wbdisk_get a "$1" 2> /dev/null)" = "$before" ]
}

# ranges_hold() - no number takes what is next to its range, and all are within it
ranges_hold() {
	local name low high value bad=0
	while read -r name low high _; do
		value=$(wbdisk_get a "$name")
		[[ $value -ge $low && $value -le $high ]] || { note "$name is $value"; bad=1; }
		for value in $((low - 1)) $((high + 1)); do
			! wbdisk_set a "$name" "$value" || { note "$name takes $value"; bad=1; }
		done
	done < "$WBDISK_CONFIGFS/ranges"
	return $bad
}

test_bad_values() {
	local bad lines
	fresh fifo
	check "numbers keep to their ranges" ranges_hold
	for bad in "link_mbps 0" "link_mbps 100001" "link_mbps -1" "link_mbps 1x" \
		   "link_mbps 4294967296" "store_mib 0" "lazy_cache 2" \
		   "stall_ms -1" "stall_ms 3600001" "power 7" "cut 0" \
		   "fail_range write" "fail_range write 1 0" "fail_range trim 1 1" \
		   "fail_range write 1 1 boom" "fail_range write 1 1 eio x" \
		   "fail_range any 18446744073709551615 2" \
		   "fail_nth read" "fail_nth read 0" "fail_nth read 1 boom" \
		   "profile floppy" "model tape" "reset_stats 0"; do
		check "refused: $bad" refuses "${bad%% *}" "${bad#* }"
	done
	for bad in "capacity_mib 1" "model ssd" "profile hdd" "queue_depth 1" \
		   "write_cache 1" "t_prog_ns 1"; do
		check "refused while the disk is on: $bad" refuses "${bad%% *}" "${bad#* }"
	done
	lines=$(dmesg_new | grep -c "wbdisk: a: link_mbps must be from 1 to 100000")
	check "the kernel log says what is allowed" [ "$lines" -ge 1 ]
	wbdisk_set a power 0
	wbdisk_set a model ssd
	wbdisk_set a write_buffer_kib 64
	wbdisk_set a prog_kib 4096
	check "numbers that contradict each other" refuses power 1
	check "a name with a slash or a dot" not mkdir "$WBDISK_CONFIGFS/a.b"
	check "a name with a letter of Latin-1" not mkdir "$WBDISK_CONFIGFS/"$'a\xff'
	check "a name too long" not mkdir "$WBDISK_CONFIGFS/abcdefghijklmnopqrstuvwxy"
} 2> /dev/null

# ---- several, and removal in use -------------------------------------------

test_several() {
	local name
	fresh fifo
	for name in b c; do
		wbdisk_create $name sata-ssd
	done
	dwrite 0 64 b
	check "disks do not share data" zero 0 64
	check "the other has it" same 0 64 b
	check "nor statistics" [ "$(wbdisk_stat c writes)" = 0 ]
	wbdisk_set b cut 1
	check "nor power" zero 0 64 c
	wbdisk_destroy b
	wbdisk_destroy c
	check "the first is still there" zero 0 64
}

test_removal() {
	local pid
	fresh fifo link_mbps=5
	dd if="$PATTERN" of=/dev/wbd-a bs=1M oflag=direct status=none 2> /dev/null &
	pid=$!
	sleep .2
	check "the module does not unload while a disk exists" \
		not rmmod wbdisk 2> /dev/null
	rmdir "$WBDISK_CONFIGFS/a"
	check "a disk goes under I/O" gone
	wait "$pid"
	check "and its user gets an error" [ $? -ne 0 ]

	fresh sata-ssd
	mkfs_mount xfs /dev/wbd-a /mnt/wbdisk
	cp "$PATTERN" /mnt/wbdisk/file
	rmdir "$WBDISK_CONFIGFS/a"
	check "a disk goes while mounted" gone
	check "writing to its file system fails" \
		not dd if="$PATTERN" of=/mnt/wbdisk/file bs=1M conv=fsync status=none 2> /dev/null
	# Not umount_fs: mountpoint cannot look at a dead file system.
	check "it unmounts" umount /mnt/wbdisk
	check "and nothing is held" [ "$(< /sys/module/wbdisk/refcnt)" = 0 ]

	fresh fifo
	wbdisk_set a fail_nth "read 1 timeout"
	dread 0 4 > /dev/null 2>&1 &
	sleep .1
	wbdisk_destroy a
	check "nor does a hanging command keep it" gone
	wait
	fresh sata-ssd link_mbps=5
	dd if="$PATTERN" of=/dev/wbd-a bs=1M oflag=direct status=none 2> /dev/null &
	sleep .2
	wbdisk_set a cut 1
	wbdisk_destroy a
	check "nor a power cut under I/O" gone
	wait
}

# ---- main ------------------------------------------------------------------

head -c 8M /dev/urandom > "$PATTERN"
if ! set_value "$TRACE/events/wbdisk/wbdisk_complete/enable" 1; then
	skip_all "needs tracefs in $TRACE"
fi
set_value "$TRACE/tracing_on" 1

mapfile -t NAMES < <(awk '{ print $2 }' "$WBDISK_CONFIGFS/profiles")
ktap_set_plan $((126 + 5 * ${#NAMES[@]} + 1))
for i in "${NAMES[@]}"; do
	test_profile "$i"
done
test_time
test_stall
test_faults
test_store
test_sectors
for i in fifo sata-ssd nvme-ssd hdd; do
	test_cut $i
done
test_power
test_bad_values
test_several
test_removal
check_dmesg
ktap_finished
