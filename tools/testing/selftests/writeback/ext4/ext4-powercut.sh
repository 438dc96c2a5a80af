#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What files on ext4 hold after a power cut.  The disk's cache is volatile: what was
# not flushed is gone.  Old data on the disk is 0xAA.
#	new	a new file, not synced
#	rename	a synced file that another one replaced by rename
#	truncate	a synced file that was truncated and rewritten
#	fsynced	a new file, synced with fsync
# Whatever the mount options, a replaced file has its old or its new content, never
# zeros and never none; a synced one has its own; old data never shows.
#
# The same for files in memory since before a remount; another file is synced before
# the cut, for a commit:
#	opened under delalloc, then with nodelalloc appended to by less and by more
#		than a page: no old data
#	mapped	a page was delayed by a fault, got its block from fallocate, and with
#		nodelalloc is overwritten: no old data
#	replaced	another one by rename, after nodelalloc,dioread_nolock ended: whole
#	faulted	a page in a hole gets its block after that: the file does not end before it
#	partly	one block of a page was written to what fallocate gave, and all follows, by
#		write and by mmap, after that: no old data
#
# The same where the commit comes at once, with the data still on its way, under
# nodelalloc,dioread_nolock:
#	replaced	another one by rename: whole
#	rewritten	truncated, and written anew: whole
#
# And with little space, where delalloc does without delayed blocks:
#	replaced	another one by rename: whole
#
# And without a power cut, where the disk refuses metadata for as long as it takes to
# unmount:
#	unmounted	a new file, synced with fsync, is there at the next mount

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"

readonly DISK_MIB=128
readonly PAGES=16
readonly OLD_SEED=1 NEW_SEED=2
# Less than ext4_nonda_switch() wants, 128 blocks on one CPU
readonly LITTLE_KIB=400
# After the second commit (every 5 s), before a flusher of 30 s; then the moments
# around both commits.
readonly CUTS_S=(9 5.2 .2 4.9 5.05 6 10.1 12 14.9 15.2)

about title "what new, replaced and fsynced files on ext4 hold after a power cut"
about replays \
	"none: with nodelalloc,dioread_nolock no worse than with delalloc; skips where that is ignored"
about wall 60
about programs awk dd dumpe2fs mke2fs e2fsck xfs_io
about series
axis cuts 3 1..99 "how many moments of each set of mount options the power is cut at" wall=12
case_parse "$@"

# put(file, seed) - truncate the file and write PAGES, without fsync
put() {
	"$WB_DIR/fs_blocks" make "$1" "$2" 0 "$PAGES" 1 > /dev/null
}

# state(file) - absent, empty, old, new, zeros, stale or mixed
state() {
	local seed log=$WB_OUT/state
	[ -e "$1" ] || { echo absent; return; }
	[ -s "$1" ] || { echo empty; return; }
	for seed in $OLD_SEED $NEW_SEED; do
		"$WB_DIR/fs_blocks" verify "$1" "$seed" 0 "$PAGES" 1 > "$log" || { echo unreadable; return; }
		if [ "$(ext4_word "$log" stale)" -gt 0 ]; then
			echo stale
			return
		fi
		[ "$(ext4_word "$log" data)" -ne "$PAGES" ] || { [ "$seed" = $OLD_SEED ] && echo old || echo new; return; }
		[ "$(ext4_word "$log" zero)" -ne "$PAGES" ] || { echo zeros; return; }
	done
	echo mixed
}

# one_of(value, allowed...)
one_of() {
	local value=$1 word
	shift
	for word in "$@"; do
		[ "$value" != "$word" ] || return 0
	done
	return 1
}

# fresh(options, [options of mke2fs...]) - new file system over old data, on a disk that
# can lose its cache
fresh() {
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1
	ext4_stale $DISK_MIB
	ext4_new "$1" -m 0 "${@:2}"
}

# end(what) - one result, and the end of this disk
end() {
	umount_fs "$MNT"
	check "$1: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
}

# run_cut(options, seconds) - six results
run_cut() {
	local file what="$1, cut after $2 s" lost=0
	local -A is
	fresh "$1"
	put "$MNT/rename" $OLD_SEED
	put "$MNT/truncate" $OLD_SEED
	sync
	put "$MNT/fsynced" $NEW_SEED
	sync "$MNT/fsynced"
	put "$MNT/new" $NEW_SEED
	put "$MNT/rename.tmp" $NEW_SEED
	mv "$MNT/rename.tmp" "$MNT/rename"
	put "$MNT/truncate" $NEW_SEED
	sleep "$2"
	ext4_power_cut "$1" || die "cannot mount after the cut"
	for file in new rename truncate fsynced; do
		is[$file]=$(state "$MNT/$file")
		[ "${is[$file]}" != stale ] || lost=1
	done
	note "$what: new ${is[new]}, rename ${is[rename]}, truncate ${is[truncate]}, fsynced ${is[fsynced]}"
	check "$what: fsynced data is there" [ "${is[fsynced]}" = new ]
	check "$what: the file replaced by rename is whole" one_of "${is[rename]}" old new
	check "$what: the file rewritten is whole" one_of "${is[truncate]}" old new
	check "$what: the new file is whole or empty" one_of "${is[new]}" absent empty new
	check "$what: no old data" [ "$lost" -eq 0 ]
	end "$what"
}

# remount(options)
remount() {
	mount -o "remount,$1" "$MNT" || die "cannot remount with $1"
}

# no_stale(file) - is there nothing that the disk had before?
no_stale() {
	"$WB_DIR/fs_blocks" verify "$1" $NEW_SEED 0 "$PAGES" 1 > "$WB_OUT/stale" || return
	note "after the cut: $(stat -c %s "$1") bytes, blocks: $(tr '\n' ' ' < "$WB_OUT/stale")"
	[ "$(ext4_word "$WB_OUT/stale" stale)" -eq 0 ] && [ "$(ext4_word "$WB_OUT/stale" gap_stale)" -eq 0 ]
}

# run_opened() - two results
run_opened() {
	local file fd what="opened before a remount with nodelalloc"
	fresh delalloc
	file=$MNT/file
	exec {fd}> "$file"
	remount nodelalloc
	ext4_io "$file" "pwrite -S 0x31 0 100"
	ext4_io "$file" "pwrite -S 0x31 -b 16k 100 16k"
	exec {fd}>&-
	ext4_commit
	ext4_power_cut delalloc || die "cannot mount after the cut"
	check "$what: no old data" no_stale "$file"
	end "$what"
}

# run_mapped() - two results
run_mapped() {
	local file fd what="delayed by a fault before a remount with nodelalloc"
	fresh nodelalloc
	file=$MNT/file
	exec {fd}> "$file"
	truncate -s 64K "$file"
	remount delalloc
	xfs_io -c "mmap -w 0 64k" -c "mwrite -S 0x31 0 4k" "$file" || die "cannot map $file"
	remount nodelalloc
	ext4_falloc "$file" 0 16k || die "cannot fallocate $file"
	ext4_io "$file" "pwrite -S 0x32 -b 16k 0 16k"
	exec {fd}>&-
	ext4_commit
	ext4_power_cut delalloc || die "cannot mount after the cut"
	check "$what: no old data" no_stale "$file"
	end "$what"
}

# whole(what, file) - two results: the power is cut
whole() {
	local is
	ext4_power_cut delalloc || die "cannot mount after the cut"
	is=$(state "$2")
	note "$1: $is"
	check "$1: whole" one_of "$is" old new
	end "$1"
}

# replaced(what, file) - two results: file.tmp becomes file, then a commit and a cut
replaced() {
	mv "$2.tmp" "$2"
	ext4_commit
	whole "$@"
}

# run_replaced(options) - two results
run_replaced() {
	local file
	fresh nodelalloc,dioread_nolock
	file=$MNT/file
	put "$file" $OLD_SEED
	sync
	put "$file.tmp" $NEW_SEED
	remount "$1"
	replaced "replaced by rename after a remount with $1" "$file"
}

# run_faulted() - one result
run_faulted() {
	local file
	fresh nodelalloc,dioread_nolock
	file=$MNT/file
	xfs_io -f -c "pwrite -S 0x31 0 4k" -c "pwrite -S 0x31 1m 4k" "$file" > /dev/null ||
		die "cannot write $file"
	remount nodelalloc,dioread_lock
	xfs_io -c "mmap -w 512k 4k" -c "mwrite -S 0x31 512k 4k" "$file" || die "cannot map $file"
	ext4_commit
	ext4_power_cut delalloc || die "cannot mount after the cut"
	end "written by a fault after a remount with nodelalloc,dioread_lock"
}

# run_partly(what, command of xfs_io...) - two results
#	One block of a page is written, then all by these commands.
run_partly() {
	local file what="partly written before a remount with nodelalloc,dioread_lock, then $1"
	fresh nodelalloc,dioread_nolock -b 1024
	file=$MNT/file
	xfs_io -f -c "falloc 0 16k" "$file" || die "no space"
	sync
	ext4_io "$file" "pwrite -S 0x31 1k 1k"
	remount nodelalloc,dioread_lock
	ext4_io "$file" "${@:2}"
	ext4_commit
	ext4_power_cut delalloc || die "cannot mount after the cut"
	check "$what: no old data" no_stale "$file"
	end "$what"
}

# replace(file, seed) - put a new file in its place, by rename
replace() {
	put "$1.tmp" "$2"
	mv "$1.tmp" "$1"
}

# run_at_once(what, put or replace) - two results
run_at_once() {
	local file what="$1, and a commit at once"
	fresh nodelalloc,dioread_nolock
	file=$MNT/file
	put "$file" $OLD_SEED
	touch "$MNT/other"
	sync
	"$2" "$file" $NEW_SEED
	# Without data of its own, which would be behind that of the file.
	chmod 600 "$MNT/other" && sync "$MNT/other"
	whole "$what" "$file"
}

# run_little() - two results
run_little() {
	local file
	fresh delalloc
	file=$MNT/file
	put "$file" $OLD_SEED
	ext4_falloc "$MNT/spare" 0 ${LITTLE_KIB}k || die "no space"
	ext4_fill || die "not full"
	rm "$MNT/spare"
	sync
	put "$file.tmp" $NEW_SEED
	replaced "replaced by rename with little space" "$file"
}

run_unmounted() {
	local what="unmounted where metadata cannot be written" file=$MNT/file sectors
	fresh delalloc
	# Not later: to look sends what the disk is to refuse.
	sectors=$(ext4_front)
	put "$file" $NEW_SEED
	sync "$file"
	# All but the superblock
	wbdisk_set test fail_range "write 8 $((sectors - 8)) eio"
	umount_fs "$MNT"
	[ "$(wbdisk_stat test errors_injected)" -gt 0 ] || die "nothing was refused"
	wbdisk_set test fail_range ""
	ext4_mount delalloc || die "cannot mount again"
	check "$what: what fsync acknowledged is there" [ "$(state "$file")" = new ]
	end "$what"
}

wb_begin
need_wbdisk
[ -x "$WB_DIR/fs_blocks" ] || skip_all "fs_blocks is not built"
ext4_need_dioread_nolock
cuts=("${CUTS_S[@]:0:OPT[cuts]}")
ktap_set_plan $((6 * ${#cuts[@]} * ${#EXT4_MOUNTS[@]} + 5 * 2 + 1 + 5 * 2 + 1))
for options in "${EXT4_MOUNTS[@]}"; do
	for at in "${cuts[@]}"; do
		run_cut "$options" "$at"
	done
done
if ext4_ends_delalloc; then
	run_opened
	run_mapped
else
	for what in "opened, no old data" "opened, e2fsck" "delayed, no old data" "delayed, e2fsck"; do
		ktap_test_skip "$what: a remount does not end delalloc here"
	done
fi
run_replaced nodelalloc,dioread_lock
run_replaced delalloc
run_faulted
run_partly write "pwrite -S 0x32 -b 16k 0 16k"
run_partly mmap "mmap -rw 0 16k" "mwrite -S 0x32 0 16k"
run_at_once "replaced by rename" replace
run_at_once rewritten put
run_little
run_unmounted
check_dmesg
ktap_finished
