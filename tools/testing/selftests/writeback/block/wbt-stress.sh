#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Everything that can change under writeback throttling changes, at random, while
# the disks work: scheduler, limits, queue, speed, CPUs, faults, and the disk goes
# away at last.  Nothing may hang, warn, get lost, or stay charged.
#
# Three modelled disks:
#	a	XFS, b: ext4, mounted with discard: fio that verifies what it wrote
#		(buffered and O_DIRECT), readers, fsyncs, small files, fstrim
#	c	no file system: writers and readers that do not mind errors, for this
#		disk also fails commands and lets them time out
#
# The same seed makes the same changes of a disk in the same order; when, is up to
# the machine; they are in the file changes of WB_OUT.  A hang ends the case with the stacks of the tasks that sleep.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"

readonly DEBUG_BLOCK=/sys/kernel/debug/block
readonly IOCOST_QOS=/sys/fs/cgroup/io.cost.qos
readonly CPU_ONLINE=/sys/devices/system/cpu/cpu1/online
readonly DISKS=(a b c) BASE=/mnt/wbt-stress
readonly STOP=stop KMEMLEAK=/sys/kernel/debug/kmemleak
# Far above what an idle machine needs; an emulated one with a debug kernel is 50
# times slower.
readonly PATIENCE_S=240
readonly MAX_STALL_MS=1500 IO_TIMEOUT_MS=30000

about title \
	"every setting of writeback throttling and its disks changed at random under load, then removal of the disks"
about replays "none: looks for hangs, splats, lost data and lost charges"
about wall 120
about programs fio blkdiscard xfs_repair e2fsck
about kernel BLK_WBT BLK_WBT_MQ DEBUG_FS MQ_IOSCHED_DEADLINE MQ_IOSCHED_KYBER IOSCHED_BFQ CGROUPS \
	BLK_CGROUP BLK_CGROUP_IOCOST
about not_fast "where a loop that never sleeps takes no time, so its seconds never end"
profiles
axis profile sata "$PROFILES" "modelled disk" main
axis runtime 20 '1..9999 s' "seconds of changes under load" wall=4
axis removals 3 0..99 "how often the disks are removed under load"
axis cpus 1 '0|1' "take CPUs offline, too, if there are several"
measures 'knob_changes, disk_removals' count - "settings changed, and disks removed, under load"
case_parse "$@"

# ---- disks -----------------------------------------------------------------

# knob(disk, attribute) - its file below queue/
knob() {
	echo "/sys/block/wbd-$1/queue/$2"
}

# put(file, value) - 1 if the kernel refuses it
put() {
	{ echo "$2" > "$1"; } 2> /dev/null
}

has_policy() {
	[ -e "$(knob a wbt_policy)" ]
}

fs_of() {
	case $1 in
	a) echo xfs ;;
	b) echo ext4 ;;
	esac
}

# power_up() - every disk is there, with empty file systems
power_up() {
	local disk
	for disk in "${DISKS[@]}"; do
		[ -d "$WBDISK_CONFIGFS/$disk" ] ||
			wbdisk_create "$disk" "${OPT[profile]}" \
				"seed=${OPT[seed]}" discard=1 || die "cannot make disk $disk"
		[ "$(wbdisk_get "$disk" power)" = 1 ] || wbdisk_set "$disk" power 1
		loop_until [ -b "/dev/wbd-$disk" ] || die "no /dev/wbd-$disk"
	done
	for disk in a b; do
		mkfs_mount "$(fs_of $disk)" "/dev/wbd-$disk" "$BASE/$disk" discard ||
			die "cannot mount a file system on disk $disk"
	done
}

# calm(disk) - no fault, no stall, the speed and the timeout it had
calm() {
	wbdisk_set "$1" stall_ms 0
	wbdisk_set "$1" fail_range ""
	wbdisk_set "$1" fail_nth ""
	wbdisk_set "$1" link_mbps "$LINK_MBPS"
}

# ---- bounded time ----------------------------------------------------------

# sleepers() - stacks of all tasks that cannot be killed
sleepers() {
	local pid comm
	for pid in /proc/[0-9]*; do
		grep -qs '^State:.D' "$pid/status" || continue
		read -r comm < "$pid/comm"
		echo "# ${pid#/proc/} $comm: $(sed 's/.*] //; s/+0x.*//' "$pid/stack" 2> /dev/null |
			head -n 16 | tr '\n' ' ')"
	done
	for pid in "${DISKS[@]}"; do
		note "disk $pid: $(tr '\n' ',' 2> /dev/null < "$DEBUG_BLOCK/wbd-$pid/rqos/wbt/bytes")"
	done
}

# bounded(what, seconds, cmd...) - run cmd in a process of its own; its exit code.
#	If it takes longer, the case ends: what hangs cannot be cleaned up.
bounded() {
	local what=$1 end=$((SECONDS + $2)) pid
	shift 2
	"$@" &
	pid=$!
	while kill -0 "$pid" 2> /dev/null; do
		if [ "$SECONDS" -ge "$end" ]; then
			note "hangs: $what"
			sleepers
			dmesg_new | grep -E "$SPLAT" | head -n 20 | sed 's/^/# dmesg: /'
			ktap_test_fail "nothing hangs"
			trap - EXIT
			ktap_print_totals
			exit 1
		fi
		alive "$what"
		sleep .2
	done
	wait "$pid"
}

# none_left() - has every task ended that this shell started, and does no other one, of
# the kernel perhaps, sleep where it cannot be killed?
none_left() {
	local pid
	[ -z "$(jobs -pr)" ] || return
	for pid in /proc/[0-9]*; do
		! grep -qs '^State:.D' "$pid/status" || return
	done
}

# no_hang() - and if not, do they within a minute?
no_hang() {
	loop_until none_left && return
	jobs -l | sed 's/^/# left: /'
	sleepers
	return 1
}

# ---- load ------------------------------------------------------------------

# stopped() - is it time to end?
stopped() {
	[ -e "$WB_OUT/$STOP" ]
}

# load_fio(disk, seconds) - data that is verified, fsyncs and readers
load_fio() {
	local dir=$BASE/$1
	fio --thread --clocksource=clock_gettime --time_based --runtime="$2" --directory="$dir" \
		--randseed="${OPT[seed]}" --verify_fatal=1 --output="$WB_OUT/fio-$1.log" \
		--name=seq --rw=write --bs=128k --size=24m --verify=crc32c \
		--name=rand --rw=randwrite --bs=4k --size=4m --fsync=64 --verify=crc32c \
		--name=direct --rw=randwrite --bs=64k --size=8m --direct=1 --verify=crc32c \
		--name=sync --rw=randwrite --bs=16k --size=2m --fsync=1 --rate_iops=50 \
		--name=read --rw=randread --bs=4k --size=8m --direct=1 --numjobs=2 \
			--rate_iops=200 --rate_process=poisson > "$WB_OUT/fio-$1.err" 2>&1
}

# load_files(disk) - small files come and go; large ones go, and are trimmed
load_files() {
	local dir=$BASE/$1/small i
	mkdir -p "$dir"
	for ((i = 0; ; i++)); do
		stopped && return
		echo "$i" > "$dir/$((i % 64)).new"
		mv "$dir/$((i % 64)).new" "$dir/$((i % 64))" || return
		((i % 16)) || sync "$dir/$((i % 64))"
		if ((i % 64 == 63)); then
			dd if=/dev/zero of="$dir/large" bs=1M count=8 status=none || return
			((i % 128 == 63)) || sync -f "$dir"
			rm -f "$dir/large"
			fstrim_dir "$BASE/$1"
		fi
	done
} 2> /dev/null

fstrim_dir() {
	if command -v fstrim > /dev/null; then
		fstrim "$1"
	elif command -v busybox > /dev/null; then
		busybox fstrim "$1"
	fi
}

# load_raw(disk) - writers that go on after errors
load_raw() {
	local dev=/dev/wbd-$1 i
	for ((i = 0; ; i++)); do
		stopped && return
		[ -b "$dev" ] || { sleep .2; continue; }
		dd if=/dev/zero of="$dev" bs=1M count=16 seek=$((i % 4 * 16)) conv=notrunc,nocreat status=none
		((i % 3)) || sync -d "$dev"
		((i % 8)) || blkdiscard -o $((i % 4 << 24)) -l $((1 << 24)) "$dev"
	done
} 2> /dev/null

# load_raw_read(disk, seconds) - O_DIRECT readers and writers of the same
load_raw_read() {
	fio --thread --clocksource=clock_gettime --time_based --runtime="$2" \
		--randseed="${OPT[seed]}" --continue_on_error=all --filename="/dev/wbd-$1" \
		--allow_file_create=0 --size=64m --direct=1 --output="$WB_OUT/fio-$1.log" \
		--name=read --rw=randread --bs=4k --rate_iops=200 --numjobs=2 \
		--name=write --rw=randwrite --bs=64k --rate_iops=50
} > /dev/null 2>&1

FIO_PIDS=() LOAD_PIDS=()

# load_start(seconds)
load_start() {
	local disk
	rm -f "$WB_OUT/$STOP"
	FIO_PIDS=() LOAD_PIDS=()
	for disk in a b; do
		load_fio "$disk" "$1" &
		FIO_PIDS+=($!)
		load_files "$disk" &
		LOAD_PIDS+=($!)
	done
	load_raw c &
	LOAD_PIDS+=($!)
	load_raw_read c "$1" &
	LOAD_PIDS+=($!)
}

# load_end() - within the bound
load_end() {
	touch "$WB_OUT/$STOP"
	bounded "load" "$PATIENCE_S" wait_gone "${FIO_PIDS[@]}" "${LOAD_PIDS[@]}"
}

wait_gone() {
	# One of them is enough for kill to succeed.
	while kill -0 "$@" 2> /dev/null; do
		sleep .2
	done
}

# ---- changes ---------------------------------------------------------------

# pick(words...) - one of them, in PICKED: RANDOM in a subshell would not go on
pick() {
	shift $((RANDOM % $#))
	PICKED=$1
}

# change(disk) - one random change of this disk; which one is in the log
change() {
	local disk=$1 dev what value
	pick scheduler scheduler wbt_lat_usec wbt_lat_usec wbt_lat_usec wbt_policy wbt_policy \
		nr_requests max_sectors_kb nomerges link_mbps stall_ms io_timeout \
		iocost cpu fault bad
	what=$PICKED
	case $what in
	scheduler) pick none mq-deadline kyber bfq ;;
	wbt_lat_usec) pick 0 -1 1 100 2000 75000 10000000 ;;
	wbt_policy) pick requests bytes bytes ;;
	nr_requests) pick 4 8 16 32 64 256 1024 ;;
	max_sectors_kb) pick 4 64 128 512 1280 ;;
	nomerges) pick 0 1 2 ;;
	link_mbps) pick 20 100 "$LINK_MBPS" "$LINK_MBPS" ;;
	stall_ms) PICKED=$((RANDOM % MAX_STALL_MS)) ;;
	io_timeout) pick 100 500 1000 "$IO_TIMEOUT_MS" ;;
	iocost) pick 0 1 ;;
	cpu) pick 0 1 ;;
	fault) pick "fail_nth write 5" "fail_nth read 5" "fail_nth write 3 timeout" \
		"fail_nth flush 1" "fail_range write 4096 8192" "fail_range any 0 8" \
		"fail_range " "fail_nth any 9 timeout" ;;
	bad) pick "wbt_lat_usec -2" "wbt_lat_usec 1x" "wbt_policy byte" ;;
	esac
	value=$PICKED
	echo "$EPOCHREALTIME $disk $what $value" >> "$WB_OUT/changes"
	case $what in
	link_mbps|stall_ms)
		wbdisk_set "$disk" "$what" "$value" ;;
	iocost)
		[ -e "$IOCOST_QOS" ] && dev=$(< "/sys/block/wbd-$disk/dev") &&
			put "$IOCOST_QOS" "$dev enable=$value" ;;
	cpu)
		[ "${OPT[cpus]}" = 0 ] || [ ! -w "$CPU_ONLINE" ] || put "$CPU_ONLINE" "$value" ;;
	fault)
		# Errors only where nothing is verified; there nothing waits for 30 s.
		[ "$disk" = c ] || return
		put "$(knob c io_timeout)" 500
		wbdisk_set c "${value%% *}" "${value#* }" ;;
	io_timeout)
		[ "$disk" != c ] || value=500
		put "$(knob "$disk" io_timeout)" "$value" ;;
	bad)
		! put "$(knob "$disk" "${value% *}")" "${value#* }" ||
			[ ! -e "$(knob "$disk" "${value% *}")" ] || echo "$value" >> "$WB_OUT/taken" ;;
	*)
		[ ! -e "$(knob "$disk" "$what")" ] || put "$(knob "$disk" "$what")" "$value" ;;
	esac 2> /dev/null
}

# change_one(disk, seconds, seed)
change_one() {
	local end=$((SECONDS + $2))
	RANDOM=$3
	while [ "$SECONDS" -lt "$end" ]; do
		[ ! -e "/sys/block/wbd-$1" ] || change "$1"
		sleep ".$((RANDOM % 3))$((RANDOM % 9 + 1))"
	done
}

# changes(seconds, seed) - at random until then, of all disks at a time: a change
# waits until the disk is idle
changes() {
	local i
	for ((i = 0; i < ${#DISKS[@]}; i++)); do
		change_one "${DISKS[i]}" "$1" $(($2 * ${#DISKS[@]} + i)) &
	done
	wait
}

# back() - settings that other disks and CPUs keep
back() {
	local disk
	for disk in "${DISKS[@]}"; do
		calm "$disk"
		put "$(knob "$disk" io_timeout)" "$IO_TIMEOUT_MS"
		[ ! -e "$IOCOST_QOS" ] ||
			put "$IOCOST_QOS" "$(< "/sys/block/wbd-$disk/dev") enable=0"
	done
	cpus_on
}

cpus_on() {
	[ "${OPT[cpus]}" = 0 ] || [ ! -w "$CPU_ONLINE" ] || put "$CPU_ONLINE" 1
}

# ---- checks ----------------------------------------------------------------

all_uncharged() {
	local disk
	for disk in "${DISKS[@]}"; do
		loop_until wbt_uncharged "wbd-$disk" && continue
		note "disk $disk: $(tr '\n' ',' < "$DEBUG_BLOCK/wbd-$disk/rqos/wbt/bytes")"
		return 1
	done
}

fio_clean() {
	local disk bad=0
	for disk in a b; do
		! grep -E 'verify|bad header|error=|err=[^ ]*[1-9]' "$WB_OUT/fio-$disk.log" "$WB_OUT/fio-$disk.err" |
			grep -Ev 'err= 0' | head -n 5 | sed 's/^/# fio: /' | grep . || bad=1
	done
	return $bad
}

# refuses(file, value) - and stays what it is?
refuses() {
	local before
	before=$(< "$1")
	save_value "$1"
	if put "$1" "$2"; then
		note "${1##*/} took '$2'"
		restore_value "$1"
		return 1
	fi
	[ "$(< "$1")" = "$before" ]
}

# refuses_all(attribute, values...)
refuses_all() {
	local file value bad=0
	file=$(knob a "$1")
	shift
	for value in "$@"; do
		refuses "$file" "$value" || bad=1
	done
	return $bad
}

# takes_all(attribute, values...) - and reads them back?
takes_all() {
	local file value
	file=$(knob a "$1")
	save_value "$file"
	shift
	for value in "$@"; do
		if ! put "$file" "$value" || [[ " $(< "$file") " != *[\ \[]"$value"[\ \]]* ]]; then
			note "${file##*/}: '$value' reads as '$(< "$file")'"
			return 1
		fi
	done
	restore_value "$file"
}

# ---- the tests -------------------------------------------------------------

test_values() {
	local numbers=("" " " x 1x 0x "1 2" 1.5 99999999999999999999 -9223372036854775809)
	check "wbt_lat_usec takes what it should" takes_all wbt_lat_usec 0 1 2000 10000000
	check "wbt_lat_usec refuses bad values" refuses_all wbt_lat_usec -2 9223372036854775808 \
		"${numbers[@]}"
	if has_policy; then
		# In ns they do not fit; on other kernels they are nonsense, but harmless.
		check "wbt_lat_usec refuses what overflows" refuses_all wbt_lat_usec \
			9223372036854775807 18446744073709552 18446744073709551 9223372036854776
		check "wbt_policy takes what it should" takes_all wbt_policy requests bytes
		check "wbt_policy refuses bad values" refuses_all wbt_policy "" " " byte bytess BYTES \
			"bytes requests" "bytes " "[bytes]" 0 1 -1
	else
		skip_test "wbt_lat_usec refuses what overflows" "no wbt_policy"
		skip_test "wbt_policy takes what it should" "no wbt_policy"
		skip_test "wbt_policy refuses bad values" "no wbt_policy"
	fi
	check "nr_requests refuses bad values" refuses_all nr_requests -1 "${numbers[@]}"
	check "scheduler refuses bad values" refuses_all scheduler nosuch "kyber x" -1
}

test_load() {
	local fio=0 pid disk
	load_start "${OPT[runtime]}"
	bounded "changes" $((OPT[runtime] + PATIENCE_S)) changes "${OPT[runtime]}" "${OPT[seed]}"
	bounded "the last change" "$PATIENCE_S" back
	load_end
	for pid in "${FIO_PIDS[@]}"; do
		wait "$pid" || fio=1
	done
	metric knob_changes "$(wc -l < "$WB_OUT/changes")"
	check "the verifying writers ran without an error" [ "$fio" = 0 ]
	check "what was written is what is read" fio_clean
	check "no bad value was taken under load" [ ! -s "$WB_OUT/taken" ]
	bounded "sync" "$PATIENCE_S" sync
	check "at rest nothing is in flight or held" all_uncharged
	for disk in a b; do
		bounded "umount" "$PATIENCE_S" umount_fs "$BASE/$disk"
		check "the $(fs_of $disk) is consistent" fsck_clean "$(fs_of $disk)" "/dev/wbd-$disk"
	done
}

# One after the other, the first while its settings change.
power_down() {
	local disk
	changes 3 "$1" &
	sleep ".$((RANDOM % 9 + 1))"
	for disk in "${DISKS[@]}"; do
		wbdisk_set "$disk" power 0
	done
	wait $!
}

test_removal() {
	local i disk left=0 removals=${OPT[removals]}
	for ((i = 1; i <= removals; i++)); do
		power_up
		load_start 3
		sleep "1.$((RANDOM % 9))"
		bounded "removal $i" "$PATIENCE_S" power_down $((OPT[seed] + i))
		load_end
		bounded "the last change" "$PATIENCE_S" cpus_on
		for disk in a b; do
			bounded "umount after removal" "$PATIENCE_S" umount_fs "$BASE/$disk"
		done
		for disk in "${DISKS[@]}"; do
			[ ! -e "/sys/block/wbd-$disk" ] || left=1
			[ "$(wbdisk_get "$disk" power)" = 0 ] || left=1
		done
	done
	metric disk_removals "${OPT[removals]}"
	check "the disks are gone after each removal" [ "$left" = 0 ]
}

test_again() {
	local fio=0 pid disk
	for disk in "${DISKS[@]}"; do
		bounded "destruction" "$PATIENCE_S" wbdisk_destroy "$disk"
	done
	power_up
	load_start 2
	sleep 2
	load_end
	for pid in "${FIO_PIDS[@]}"; do
		wait "$pid" || fio=1
	done
	check "new disks work as the first did" [ "$fio" = 0 ]
	bounded "sync" "$PATIENCE_S" sync
	check "and nothing is in flight or held on them" all_uncharged
	for disk in a b; do
		bounded "umount" "$PATIENCE_S" umount_fs "$BASE/$disk"
		check "their $(fs_of $disk) is consistent" fsck_clean "$(fs_of $disk)" "/dev/wbd-$disk"
	done
}

# leaks() - what kmemleak found in the block layer, if it is there
leaks() {
	[ -w "$KMEMLEAK" ] || return 0
	# It takes an object for lost only when it was seen twice.
	echo scan > "$KMEMLEAK"
	sleep 6
	echo scan > "$KMEMLEAK"
	awk '/^unreferenced/ { if (bad) printf "%s", text; text = ""; bad = 0 }
		{ text = text "# " $0 "\n" }
		/wbt_|blk_mq|rq_qos|elevator_/ { bad = 1 }
		END { if (bad) printf "%s", text }' "$KMEMLEAK" > "$WB_OUT/leaks"
	head -n 40 "$WB_OUT/leaks"
	[ ! -s "$WB_OUT/leaks" ]
}

# ---- main ------------------------------------------------------------------

wb_begin
need_wbdisk
SPLAT+='|frozen with .* in flight'
note "seed ${OPT[seed]}, ${OPT[runtime]} s"
# The flusher has always something to do, and writers wait for it.
set_dirty background_bytes 4194304
set_dirty bytes 33554432
set_dirty writeback_centisecs 50
set_dirty expire_centisecs 100
RANDOM=${OPT[seed]}
power_up
[ -e "$(knob a wbt_lat_usec)" ] || skip_all "needs writeback throttling (CONFIG_BLK_WBT_MQ)"
LINK_MBPS=$(wbdisk_get a link_mbps)
[ ! -w "$CPU_ONLINE" ] || on_exit cpus_on

[ ! -w "$KMEMLEAK" ] || echo clear > "$KMEMLEAK"

ktap_set_plan 21
test_values
test_load
test_removal
test_again
for disk in "${DISKS[@]}"; do
	bounded "destruction" "$PATIENCE_S" wbdisk_destroy "$disk"
done
check "no memory of the block layer is lost" leaks
check "nothing hangs" no_hang
check_dmesg
ktap_finished
