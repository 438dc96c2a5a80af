#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# For cases that measure CPU time: a null_blk that completes at once, so that the CPU is
# always busy, and what a dd to it takes.  Sourced after functions.sh.

# shellcheck source=../lib/fio.sh
. "$WB_DIR/lib/fio.sh"

readonly NULLB=/sys/kernel/config/nullb/$COST_DISK	# COST_DISK: its name, set before

# nullb_create(block size in bytes) / nullb_destroy() - /dev/$COST_DISK, gone at exit
nullb_create() {
	mkdir "$NULLB" 2> /dev/null || return
	on_exit nullb_destroy
	echo "$1" > "$NULLB/blocksize" && echo 1024 > "$NULLB/size" &&
		echo 1 > "$NULLB/power" && loop_until [ -b "/dev/$COST_DISK" ]
}

nullb_destroy() {
	echo 0 > "$NULLB/power"
	rmdir "$NULLB"
}

# ns_per_block(log, block size in bytes) - of a dd
ns_per_block() {
	dd_rate "$1" | awk -v block="$2" '{ printf "%.6g", 1e9 * $2 / ($1 / block) }'
}

# median(numbers) - of an odd number of them
median() {
	# shellcheck disable=SC2086 # one line per number
	printf '%s\n' $1 | sort -g | awk '{ v[NR] = $1 } END { print v[(NR + 1) / 2] }'
}
