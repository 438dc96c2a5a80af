#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Disks and file systems for the writeback selftests: the modelled disk
# (wbdisk), an existing block device, or a directory on a real machine.
# Sourced by functions.sh.

readonly WBDISK_CONFIGFS=/sys/kernel/config/wbdisk
# Same identifiers in every run: the on-disk bytes depend on nothing else.
readonly FS_UUID=ca1a0000-0000-4000-8000-00000000ca1a
readonly HASH_SEED=ca1a0000-0000-4000-8000-00000000cafe

about kernel MODULES MODULE_UNLOAD CONFIGFS_FS BLK_DEV HIGH_RES_TIMERS EXT4_FS XFS_FS

# ---- options ---------------------------------------------------------------

# profiles() - PROFILES are those of the module's table, between "|"; where it was
# installed without its source, the module says later which there are
profiles() {
	local line table=$WB_DIR/test_modules/model/wbdisk_profiles.h
	PROFILES=@profile
	[ -r "$table" ] || return 0
	PROFILES=
	while IFS= read -r line; do
		[[ $line =~ ^WBD_PROFILE\(([a-z0-9_]+), ]] || continue
		PROFILES+=${PROFILES:+|}${BASH_REMATCH[1]}
	done < "$table"
}

kind profile '[a-z][a-z0-9_-]*' PROFILE
kind device 'dev:/dev/[A-Za-z0-9_/.:+-]+' dev:/dev/X

# axis_disk(default) - declare the options that choose where a case runs
axis_disk() {
	profiles
	axis disk "$1" "$PROFILES|@device" \
		"disk model (profile of wbdisk), or a device of the functional lane" main
	axis_disk_set
	axis dir "" @path "run below this existing directory: no module, no mkfs" local
	axis erase 0 flag "allow --disk=dev: on a disk that is not QEMU's; its data is lost" local
}

axis_disk_set() {
	axis disk-set "" @pairs "attributes of the modelled disk to override"
}

# ---- the modelled disk -----------------------------------------------------

# load_wbdisk() - load the module unless it is there; 1 if that fails
load_wbdisk() {
	local ko=$WB_DIR/test_modules/wbdisk.ko
	mountpoint -q /sys/kernel/config 2> /dev/null ||
		mount -t configfs configfs /sys/kernel/config 2> /dev/null
	[ ! -d "$WBDISK_CONFIGFS" ] || return 0
	if [ -r "$ko" ]; then
		insmod "$ko" || return 1
	else
		modprobe -q wbdisk || return 1
	fi
	on_exit unload_wbdisk
	loop_until [ -d "$WBDISK_CONFIGFS" ]
}

unload_wbdisk() {
	rmmod wbdisk || note "wbdisk does not unload"
}

# profile_check(profile) - exits if the module does not have it
profile_check() {
	grep -qw -- "$1" "$WBDISK_CONFIGFS/profiles" ||
		usage_error "no profile '$1': there are $(awk '{ print $1 }' "$WBDISK_CONFIGFS/profiles" | paste -sd ' ')"
}

# need_wbdisk() - skip the whole case if the module cannot be loaded
need_wbdisk() {
	load_wbdisk || skip_all "needs test_modules/wbdisk.ko built for $(uname -r): make with KDIR="
}

# wbdisk_set(name, attribute, value) - 1 if the module refuses
wbdisk_set() {
	{ echo "$3" > "$WBDISK_CONFIGFS/$1/$2"; } 2> /dev/null
}

# wbdisk_get(name, attribute)
wbdisk_get() {
	cat "$WBDISK_CONFIGFS/$1/$2"
}

# wbdisk_stat(name, key) - one number of the instance's statistics
wbdisk_stat() {
	awk -v key="$2" '$1 == key { print $2 }' "$WBDISK_CONFIGFS/$1/stats"
}

# wbdisk_create(name, profile, [attribute=value...]) - make /dev/wbd-NAME
#	Gone again at exit.  Returns 1 with a diagnostic if the module refuses.
wbdisk_create() {
	local name=$1 profile=$2 pair
	shift 2
	mkdir "$WBDISK_CONFIGFS/$name" || return 1
	on_exit wbdisk_destroy "$name"
	for pair in "profile=$profile" "$@" power=1; do
		if ! wbdisk_set "$name" "${pair%%=*}" "${pair#*=}"; then
			note "wbdisk $name: cannot set $pair"
			return 1
		fi
	done
	loop_until [ -b "/dev/wbd-$name" ]
}

# wbdisk_destroy(name) - remove the instance and what it stored
wbdisk_destroy() {
	[ -d "$WBDISK_CONFIGFS/$1" ] || return 0
	wbdisk_set "$1" power 0
	rmdir "$WBDISK_CONFIGFS/$1"
}

# ---- file systems ----------------------------------------------------------

# fs_check(fs) - skip the whole case without it
fs_check() {
	grep -qw "$1" /proc/filesystems || modprobe -q "$1" || skip_all "--fs=$1: this kernel does not have it"
	command -v "mkfs.$1" > /dev/null || skip_all "--fs=$1: needs mkfs.$1"
}

# make_fs(fs, device) - the same bytes on disk every time
make_fs() {
	case $1 in
	xfs)
		mkfs.xfs -q -f -K -m uuid="$FS_UUID" "$2" ;;
	ext4)
		mke2fs -q -F -t ext4 -U "$FS_UUID" \
			-E "nodiscard,hash_seed=$HASH_SEED,lazy_itable_init=0,lazy_journal_init=0" \
			"$2" ;;
	btrfs)
		mkfs.btrfs -q -f -K -U "$FS_UUID" "$2" ;;
	*)
		note "no such file system: $1"; return 1 ;;
	esac
}

# mkfs_mount(fs, device, directory, [options]) - unmounted again at exit
mkfs_mount() {
	make_fs "$1" "$2" && mount_fs "$1" "$2" "$3" "${4:-}"
}

# mount_fs(fs, device, directory, [options])
mount_fs() {
	mkdir -p "$3" && mount -t "$1" ${4:+-o "$4"} "$2" "$3" || return
	on_exit umount_fs "$3"
}

# umount_fs(directory, [cmd...]) - nothing to do if it is not mounted; by cmd, if given
#	mountpoint(1) fails on one that XFS has shut down.
umount_fs() {
	! grep -q "^[^ ]* $1 " /proc/self/mounts || "${@:2}" umount "$1"
}

# extents(file) - in how many pieces it is on the disk
extents() {
	filefrag "$1" | sed -n 's/.*: \([0-9]*\) extents\? found/\1/p'
}

# first_sector(file) - where its first extent is on the disk, in sectors of 512 B
#	"   0:  0..  255:  34816..  35071: ..." in blocks of 4 KiB
first_sector() {
	filefrag -v "$1" | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 * 8 }'
}

# wbt_uncharged(disk) - has writeback throttling nothing in flight or held on it?
wbt_uncharged() {
	local dir=/sys/kernel/debug/block/$1/rqos/wbt
	[ ! -e "$dir/inflight" ] || ! grep -qv 'inflight 0$' "$dir/inflight" || return
	[ ! -e "$dir/bytes" ] ||
		awk '/^(inflight|held|held_bytes) / && $2 { bad = 1 } END { exit bad }' "$dir/bytes"
}

# fsck_clean(fs, device) - is the unmounted file system consistent?
fsck_clean() {
	case $1 in
	xfs) xfs_repair -n "$2" > "$WB_OUT/fsck" 2>&1 ;;
	ext4) e2fsck -fn "$2" > "$WB_OUT/fsck" 2>&1 ;;
	esac && return 0
	tail -n 20 "$WB_OUT/fsck" | sed 's/^/# fsck: /'
	return 1
}

# ---- devices on top of the disk --------------------------------------------

readonly STACK_DM=writeback-selftest
readonly STACK_CHUNK_KIB=512	# mdadm's own default

# stack_check() - skips or exits if the stack of the options cannot be made
stack_check() {
	case ${OPT[stack]:-none} in
	none)
		return ;;
	linear)
		command -v dmsetup > /dev/null || skip_all "--stack=linear needs dmsetup"
		modprobe -q dm-mod 2> /dev/null
		grep -qw device-mapper /proc/misc || skip_all "--stack=linear: this kernel has no device mapper" ;;
	raid0)
		[[ ${OPT[disk]} != dev:* ]] || usage_error "--stack=raid0 needs a modelled disk"
		command -v mdadm > /dev/null || skip_all "--stack=raid0 needs mdadm"
		modprobe -q raid0 2> /dev/null
		grep -qw raid0 /proc/mdstat 2> /dev/null || skip_all "--stack=raid0: this kernel has no md RAID0" ;;
	esac
	[ -z "${OPT[dir]}" ] || usage_error "--stack and --dir exclude each other"
}

# md_free() - the name of an md array that does not exist
md_free() {
	local n
	for ((n = 127; n > 100; n--)); do
		[ ! -e "/sys/block/md$n/md/level" ] && echo "md$n" && return
	done
	return 1
}

# stack_create(kind, devices...) - sets STACK_DEV; gone again at exit
stack_create() {
	local kind=$1 size
	shift
	case $kind in
	linear)
		size=$(blockdev --getsz "$1") &&
			dmsetup create "$STACK_DM" --noudevsync --table "0 $size linear $1 0" || return
		# Who makes the nodes below /dev/mapper depends on udev.
		STACK_DEV=/dev/$(dmsetup info -c --noheadings -o blkdevname "$STACK_DM") || return ;;
	raid0)
		STACK_DEV=/dev/$(md_free) || return
		# Nothing is written to the disks: no superblock, no resync.
		mdadm --build "$STACK_DEV" --quiet --level=0 --raid-devices=$# \
			--chunk="$STACK_CHUNK_KIB" "$@" || { STACK_DEV=; return 1; } ;;
	esac
	on_exit stack_remove
	loop_until [ -b "$STACK_DEV" ]
}

stack_remove() {
	case $STACK_DEV in
	"") return ;;
	/dev/dm-*) dmsetup remove --retry --noudevsync "$STACK_DM" ;;
	*) mdadm --stop --quiet "$STACK_DEV" ;;
	esac && STACK_DEV=
}

# ---- the disk a case runs on -----------------------------------------------

DISK_KIND=	# wbdisk, dev or dir
DISK_DEV=	# block device, empty for dir
DISK_NAME=	# its name in /sys/block, empty if unknown
DISK_LOWER=()	# the same; with --stack=raid0, of every disk below
DISK_MODELS=()	# names of the modelled disks
STACK_DEV=	# block device on top of it, empty without --stack
MNT=		# directory to work in

# disk_refuses(device) - print why a device must not be overwritten, if so
disk_refuses() {
	local model="" dev name part
	[ -b "$1" ] || { echo "$1 is not a block device"; return; }
	dev=$(readlink -f "$1")
	name=${dev##*/}
	for part in /sys/class/block/"$name" /sys/class/block/"$name"/*; do
		[ -e "$part/dev" ] || continue
		# By number: the root file system's device may be called /dev/root.
		if grep -q "^[0-9]* [0-9]* $(< "$part/dev") " /proc/self/mountinfo ||
		   grep -q "^/dev/${part##*/} " /proc/swaps ||
		   [ -n "$(ls "$part/holders" 2> /dev/null)" ]; then
			echo "/dev/${part##*/} is in use"
			return
		fi
	done
	[ ! -r "/sys/block/$name/device/model" ] ||
		model=$(< "/sys/block/$name/device/model")
	if [[ $model != QEMU* && $name != wbd-* ]] && [ "${OPT[erase]}" = 0 ]; then
		echo "all data on $1 would be lost: add --erase to allow it"
	fi
}

# disk_of(sysfs) - name in /sys/block of a disk, or of a partition's disk; nothing
# if there is none, as for file systems on several disks
disk_of() {
	local sys
	sys=$(readlink -f "$1") || return
	[ ! -e "$sys/partition" ] || sys=${sys%/*}
	[ ! -d "$sys/queue" ] || echo "${sys##*/}"
}

# disk_check() - may the case use the disk of its options?  Skips or exits if not.
disk_check() {
	local why
	if [ -n "${OPT[dir]}" ]; then
		[[ -d "${OPT[dir]}" && -w "${OPT[dir]}" ]] ||
			usage_error "--dir=${OPT[dir]} is not a writable directory"
	elif [[ ${OPT[disk]} = dev:* ]]; then
		why=$(disk_refuses "${OPT[disk]#dev:}")
		[ -z "$why" ] || usage_error "$why"
	else
		need_wbdisk
		profile_check "${OPT[disk]}"
	fi
	stack_check
}

# disk_setup(fs, [mount options, [attribute=value...]]) - MNT is an empty
# directory on the disk of the options, DISK_* say which.  Call disk_check first.
disk_setup() {
	local fs=$1 options=${2:-} profile pairs=() name stack=${OPT[stack]:-none}
	shift $(($# < 2 ? $# : 2))
	if [ -n "${OPT[dir]}" ]; then
		DISK_KIND=dir DISK_DEV=
		MNT=$(mktemp -d "${OPT[dir]}/writeback.XXXXXX") || die "cannot write below ${OPT[dir]}"
		DISK_NAME=$(disk_of "/sys/dev/block/$(stat -c %Hd:%Ld "$MNT")")
		DISK_LOWER=(${DISK_NAME:+"$DISK_NAME"})
		on_exit rm -rf "$MNT"
		return
	fi
	MNT=/mnt/writeback
	if [[ ${OPT[disk]} = dev:* ]]; then
		DISK_KIND=dev
		DISK_DEV=$(readlink -f "${OPT[disk]#dev:}")
	else
		DISK_KIND=wbdisk DISK_DEV=/dev/wbd-test
		IFS=, read -ra pairs <<< "${OPT[disk-set]}"
		profile=${OPT[disk]}
		DISK_MODELS=(test)
		[ "$stack" != raid0 ] || DISK_MODELS=(test test2)
		for name in "${DISK_MODELS[@]}"; do
			wbdisk_create "$name" "$profile" "seed=${OPT[seed]}" "$@" "${pairs[@]}" ||
				die "cannot make the disk: $profile $* ${pairs[*]}"
		done
	fi
	DISK_NAME=$(disk_of "/sys/class/block/${DISK_DEV##*/}")
	DISK_LOWER=("$DISK_NAME")
	[ "$stack" != raid0 ] || DISK_LOWER=("${DISK_MODELS[@]/#/wbd-}")
	if [ "$stack" = raid0 ]; then
		stack_create raid0 "${DISK_LOWER[@]/#//dev/}" || die "cannot make a RAID0 of ${DISK_LOWER[*]}"
	elif [ "$stack" = linear ]; then
		stack_create linear "$DISK_DEV" || die "cannot map $DISK_DEV"
	fi
	mkfs_mount "$fs" "${STACK_DEV:-$DISK_DEV}" "$MNT" "$options" ||
		die "cannot make or mount $fs on ${STACK_DEV:-$DISK_DEV}"
}

# disk_teardown() - undo disk_setup
disk_teardown() {
	local name
	case $DISK_KIND in
	dir) rm -rf "$MNT" ;;
	dev) umount_fs "$MNT" && stack_remove ;;
	wbdisk)
		umount_fs "$MNT" && stack_remove || return
		for name in "${DISK_MODELS[@]}"; do
			wbdisk_destroy "$name" || return
		done ;;
	esac
}

# disk_raw(profile, [attribute=value...]) - a modelled disk without a file system:
# sets DISK_*, and MNT to where one would be mounted
disk_raw() {
	DISK_KIND=wbdisk DISK_DEV=/dev/wbd-test DISK_NAME=wbd-test DISK_LOWER=(wbd-test)
	DISK_MODELS=(test) STACK_DEV='' MNT=/mnt/writeback
	wbdisk_create test "$1" "seed=${OPT[seed]}" "${@:2}" || die "cannot make the disk: $*"
}

# disk_beside(fs, name, profile, [attribute=value...]) - one more modelled disk, mounted
# on /mnt/NAME; disk_drop(name) removes it
disk_beside() {
	local fs=$1 name=$2 options=
	shift
	# Every file system made here has the same UUID.
	[ "$fs" != xfs ] || options=nouuid
	if ! wbdisk_create "$@" "seed=${OPT[seed]}" ||
	   ! mkfs_mount "$fs" "/dev/wbd-$name" "/mnt/$name" "$options"; then
		die "cannot make the disk $name"
	fi
}

disk_drop() {
	umount_fs "/mnt/$1" && wbdisk_destroy "$1"
}

# quota(command) - of xfs_quota, which knows ext4's, too
quota() {
	xfs_quota -f -x -c "$1" "$MNT"
}

# disk_write_stat(var) - "write requests, sectors of 512 B" since the disk exists
disk_write_stat() {
	local f
	printf -v "$1" '0 0'
	[ -n "$DISK_NAME" ] || return 0
	read -ra f < "/sys/block/$DISK_NAME/stat"
	printf -v "$1" '%s %s' "${f[4]}" "${f[6]}"
}
