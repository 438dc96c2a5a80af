#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The accounting of writeback throttling by bytes (wbt_policy): at rest, nothing is
# charged and nothing is held, whatever happened before: buffered, direct and sync
# writes, discards, errors, timeouts, merges, removal of the disk.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/by-bytes.sh
. "$WB_DIR/lib/by-bytes.sh"

about title \
	"throttling by bytes: the accounting is back at zero after errors, timeouts, discards, merges and removal"
about replays "none: tests wbt_policy=bytes; skips on a kernel without it"
about wall 30
about programs blkdiscard
about series
about not_fast "where it takes longer than in the exact lane"
case_parse "$@"

# changes() - the kernel checks its counts when a setting changes
changes() {
	queue_set wbt_policy requests && queue_set wbt_policy bytes && at_rest
}

# mixed(disk, fs, scheduler, nomerges) - two results
mixed() {
	local label="account: $1, $2, $3, nomerges $4" i
	fresh "$1" "$2" none discard
	if ! queue_set scheduler "$3" || ! queue_set nomerges "$4"; then
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
mixed_raw() {
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
test_removal() {
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

bytes_begin wbt-account
ktap_set_plan 13
mixed sata xfs mq-deadline 0
mixed nvme ext4 none 2
mixed fifo ext4 kyber 1
mixed_raw sata mq-deadline 0
mixed_raw nvme none 2
test_removal
check_dmesg
ktap_finished
