#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tests that nobody here wrote, on modelled disks: fio's verify jobs, stress-ng's io
# and file system classes, dbench, fs_mark.  Run it on two kernels and compare: a
# test that fails on one only is a regression.  Documentation/testing.md says
# what is left out, and why.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/fio.sh
. "$WB_DIR/lib/fio.sh"

# Of stress-ng 0.15.06, those that write or wait for writes.  --verify makes them
# check what they read.  Not dir: a task of it reads until another ends it, and does
# not give way where computing takes no time.
readonly STRESSORS="aiol chattr copy-file dentry dirdeep dirmany dnotify fallocate fcntl fiemap file-ioctl
	filename flock fpunch fstat getdent hdd inode-flags inotify io iomix io-uring link lockf
	locka lockofd mknod open readahead rename seek sendfile symlink sync-file touch utime"
readonly QUICK="fallocate fiemap fpunch hdd io iomix sync-file"
readonly LOADFILE=/usr/share/dbench/client.txt

about title "fio's verify jobs, stress-ng, dbench, fs_mark on ext4 and XFS: compare two kernels"
about replays "none: looks for what fails on one kernel only"
about wall 90
about once fs=ext4
about programs fio
about own_programs fs_mark dbench stress-ng
axis stressors quick 'quick|all' \
	"of stress-ng: those that write a lot, or all of its io and file system classes"
axis ops 50 1..999999 "operations of each stressor"
axis dbench-s 1 '1..9999 s' "seconds of dbench, each of two runs"
axis fs all 'all|ext4|xfs' "file system"
case_parse "$@"

# run(name, cmd...) - one result; what it said if it fails
run() {
	local name=$1 rc begin end
	shift
	now_us begin
	timeout 900 "$@" > "$WB_OUT/run" 2>&1
	rc=$?
	now_us end
	case $rc in
	0) ktap_test_pass "$name" ;;
	# stress-ng: 3 no resource, 4 not implemented
	3|4) skip_test "$name" "not possible here: exit code $rc" ;;
	*) tail -n 8 "$WB_OUT/run" | tr -cd '\11\12\40-\176' | sed 's/^/# /'
	   note "exit code $rc after $(((end - begin) / 1000)) ms"
	   ktap_test_fail "$name" ;;
	esac
}

# fio_verify(name, args...) - writes, then reads and compares
fio_verify() {
	local name=$1
	shift
	run "$FS: fio verify, $name" fio --name=v --directory="$MNT" --clocksource=clock_gettime --thread \
		--randseed="${OPT[seed]}" --size=8m --do_verify=1 --verify_fatal=1 --verify=crc32c \
		--end_fsync=1 "$@"
	rm -f "$MNT"/v.*
}

test_fs() {
	local name
	disk_raw sata-ssd capacity_mib=1024 write_cache=1
	mkfs_mount "$FS" "$DISK_DEV" "$MNT" || die "no $FS"
	fio_verify "sequential, buffered" --rw=write --bs=128k
	fio_verify "random, buffered" --rw=randwrite --bs=4k
	fio_verify "random, O_DIRECT, 16 deep" --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=16
	fio_verify "mixed sizes, fsync" --rw=randwrite --bsrange=512-64k --fsync=32
	fio_verify "mmap" --rw=randwrite --bs=4k --ioengine=mmap
	fio_verify "meta" --rw=randwrite --bs=4k --fallocate=none --verify=meta
	run "$FS: fs_mark, sync per file" fs_mark -d "$MNT/mark" -s 4096 -n 100 -t 2 -S 1
	run "$FS: fs_mark, sync at the end" fs_mark -d "$MNT/mark" -s 16384 -n 200 -t 2 -S 3
	rm -rf "$MNT/mark"
	run "$FS: dbench, 4 clients" dbench -c "$LOADFILE" -D "$MNT" -t "${OPT[dbench-s]}" 4
	run "$FS: dbench, synchronous" dbench -c "$LOADFILE" -D "$MNT" -t "${OPT[dbench-s]}" -s -S 2
	rm -rf "$MNT/clients"
	for name in "${NAMES[@]}"; do
		run "$FS: stress-ng $name" stress-ng --"$name" 1 --"$name"-ops "${OPT[ops]}" --timeout 60 --verify \
			--temp-path "$MNT" --seed "${OPT[seed]}" --hdd-bytes 16m --fallocate-bytes 16m \
			--iomix-bytes 16m --sync-file-bytes 8m
	done
	umount_fs "$MNT"
	check "$FS: the file system is consistent" fsck_clean "$FS" "$DISK_DEV"
	check "$FS: nothing is left in flight" [ "$(wbdisk_stat test inflight_bytes)" = 0 ]
	disk_teardown
}

wb_begin
need_wbdisk
read -ra NAMES <<< "$QUICK"
[ "${OPT[stressors]}" = quick ] || read -d '' -ra NAMES <<< "$STRESSORS"
kinds=(ext4 xfs)
[ "${OPT[fs]}" = all ] || kinds=("${OPT[fs]}")
ktap_set_plan $((${#kinds[@]} * (12 + ${#NAMES[@]}) + 1))
for FS in "${kinds[@]}"; do
	test_fs
done
check_dmesg
ktap_finished
