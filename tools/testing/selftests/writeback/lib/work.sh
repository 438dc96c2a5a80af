#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Work on files of a modelled disk until something ends it, for the cases powercut and
# log-writes.  Sourced after functions.sh and ext4.sh.
#
# A configuration is FORMAT:MOUNT, such as 1k:nodelalloc, or xfs:4k, xfs:1k.

readonly PC_WRITERS=4
# Flushers and commits have something to do all the time.
readonly PC_EXPIRE_CENTISECS=30 PC_FLUSH_CENTISECS=10

# draw(number, salt, below) - pseudo-random, by the seed and both
draw() {
	local -i x=${OPT[seed]}
	x=$((x * 1000003 + $1 * 8191 + $2))
	x=$(((x ^ x >> 15) * 0x2c1b3c6d & 0xffffffff))
	x=$(((x ^ x >> 12) * 0x297a2d39 & 0xffffffff))
	echo $(((x ^ x >> 15) % $3))
}

# pc_need() - skip the case without the programs; flushers that are always busy
pc_need() {
	[[ -x "$WB_DIR/powercut_load" && -x "$WB_DIR/powercut_verify" ]] ||
		skip_all "powercut_load and powercut_verify are not built"
	if ! { set_dirty expire_centisecs "$PC_EXPIRE_CENTISECS" &&
	       set_dirty writeback_centisecs "$PC_FLUSH_CENTISECS"; }; then
		die "cannot set vm.dirty_*"
	fi
}

# pc_fs(config) - ext4 or xfs
pc_fs() {
	case $1 in
	xfs:*) echo xfs ;;
	*) echo ext4 ;;
	esac
}

# pc_format(config, device) - a new file system that leaves the data blocks as they are
pc_format() {
	# shellcheck disable=SC2034 # of ext4_format
	local mkfs DISK_DEV=$2
	if [ "$(pc_fs "$1")" = xfs ]; then
		# mkfs.xfs makes one below 300 MiB only for xfstests, which these say.
		TEST_DIR=/ TEST_DEV=/dev/null QA_CHECK_FS=1 \
			mkfs.xfs -q -f -K -m uuid="$FS_UUID" -b size="${1#xfs:}" "$2"
	else
		read -ra mkfs <<< "${EXT4_FORMAT[${1%%:*}]}"
		ext4_format -m 0 -J size=4 "${mkfs[@]}"
	fi > "$WB_OUT/mkfs" 2>&1 && return
	note_file "$WB_OUT/mkfs"
	return 1
}

# pc_mount(config, device) - on MNT
pc_mount() {
	if [ "$(pc_fs "$1")" = xfs ]; then
		mount_fs xfs "$2" "$MNT"
	else
		mount_fs ext4 "$2" "$MNT" "${1#*:},commit=1"
	fi
}

# pc_load(number, seed, ms, [cut file, [writers, [fault]]]) - work for so long, then cut
# the power, or let some accesses fail and work for as long again, or stop; PC_STATE is
# what must be there.  Prints nothing unless something failed meanwhile.
pc_load() {
	local log=$WB_OUT/load
	PC_STATE=$WB_OUT/state-$1
	"$WB_DIR/powercut_load" "$MNT" "$PC_STATE" "$1" "$2" "${5:-$PC_WRITERS}" "$3" \
		${4:+"$4"} ${6:+"$6"} \
		> "$log" 2>&1 && return
	note_file "$log"
	return 1
}

# pc_count(file, key) - the number behind a word in a line of powercut_*, 0 without one
pc_count() {
	local n
	n=$(sed -n "s/.*\\b$2 \\([0-9]*\\).*/\\1/p" "$1" | tail -n 1)
	echo "${n:-0}"
}

# pc_verify([state...]) - what is below MNT against that; log in $WB_OUT/verify
pc_verify() {
	"$WB_DIR/powercut_verify" "$MNT" "$@" > "$WB_OUT/verify" 2>&1 && return
	note_file "$WB_OUT/verify"
	return 1
}
