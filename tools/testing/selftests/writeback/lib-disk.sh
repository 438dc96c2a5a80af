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

# ---- the modelled disk -----------------------------------------------------

# load_wbdisk() - load the module unless it is there; 1 if that fails
function load_wbdisk() {
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
	loop_until "[ -d $WBDISK_CONFIGFS ]"
}

function unload_wbdisk() {
	rmmod wbdisk || note "wbdisk does not unload"
}

# need_wbdisk() - skip the whole case if the module cannot be loaded
function need_wbdisk() {
	load_wbdisk || skip_all "needs test_modules/wbdisk.ko built for $(uname -r): make with KDIR="
}

# wbdisk_profile(name) - profile that an axis value of --disk stands for
function wbdisk_profile() {
	case $1 in
	sata) echo sata-ssd ;;
	nvme) echo nvme-ssd ;;
	usb) echo usb-stick ;;
	*) echo "$1" ;;
	esac
}

# wbdisk_set(name, attribute, value) - 1 if the module refuses
function wbdisk_set() {
	{ echo "$3" > "$WBDISK_CONFIGFS/$1/$2"; } 2> /dev/null
}

# wbdisk_get(name, attribute)
function wbdisk_get() {
	cat "$WBDISK_CONFIGFS/$1/$2"
}

# wbdisk_stat(name, key) - one number of the instance's statistics
function wbdisk_stat() {
	awk -v key="$2" '$1 == key { print $2 }' "$WBDISK_CONFIGFS/$1/stats"
}

# wbdisk_create(name, profile, [attribute=value...]) - make /dev/wbd-NAME
#	Gone again at exit.  Returns 1 with a diagnostic if the module refuses.
function wbdisk_create() {
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
	loop_until '[ -b "/dev/wbd-'"$name"'" ]'
}

# wbdisk_destroy(name) - remove the instance and what it stored
function wbdisk_destroy() {
	[ -d "$WBDISK_CONFIGFS/$1" ] || return 0
	wbdisk_set "$1" power 0
	rmdir "$WBDISK_CONFIGFS/$1"
}

# ---- file systems ----------------------------------------------------------

# make_fs(fs, device) - the same bytes on disk every time
function make_fs() {
	case $1 in
	xfs)
		mkfs.xfs -q -f -K -m uuid="$FS_UUID" "$2" ;;
	ext4)
		mke2fs -q -F -t ext4 -U "$FS_UUID" \
			-E "nodiscard,hash_seed=$HASH_SEED,lazy_itable_init=0,lazy_journal_init=0" \
			"$2" ;;
	*)
		note "no such file system: $1"; return 1 ;;
	esac
}

# mkfs_mount(fs, device, directory, [options]) - unmounted again at exit
function mkfs_mount() {
	make_fs "$1" "$2" && mount_fs "$1" "$2" "$3" "${4:-}"
}

# mount_fs(fs, device, directory, [options])
function mount_fs() {
	mkdir -p "$3" && mount -t "$1" ${4:+-o "$4"} "$2" "$3" || return
	on_exit umount_fs "$3"
}

# umount_fs(directory) - nothing to do if it is not mounted
function umount_fs() {
	! mountpoint -q "$1" || umount "$1"
}

# fsck_clean(fs, device) - is the unmounted file system consistent?
function fsck_clean() {
	case $1 in
	xfs) xfs_repair -n "$2" > "$WB_OUT/fsck" 2>&1 ;;
	ext4) e2fsck -fn "$2" > "$WB_OUT/fsck" 2>&1 ;;
	esac && return 0
	tail -n 20 "$WB_OUT/fsck" | sed 's/^/# fsck: /'
	return 1
}

# ---- the disk a case runs on -----------------------------------------------

DISK_KIND=	# wbdisk, dev or dir
DISK_DEV=	# block device, empty for dir
DISK_NAME=	# its name in /sys/block, empty if unknown
MNT=		# directory to work in

# disk_refuses(device) - print why a device must not be overwritten, if so
function disk_refuses() {
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
function disk_of() {
	local sys
	sys=$(readlink -f "$1") || return
	[ ! -e "$sys/partition" ] || sys=${sys%/*}
	[ ! -d "$sys/queue" ] || echo "${sys##*/}"
}

# disk_check() - may the case use the disk of its options?  Skips or exits if not.
function disk_check() {
	local why
	if [ -n "${OPT[dir]}" ]; then
		[[ -d "${OPT[dir]}" && -w "${OPT[dir]}" ]] ||
			usage_error "--dir=${OPT[dir]} is not a writable directory"
	elif [[ ${OPT[disk]} = dev:* ]]; then
		why=$(disk_refuses "${OPT[disk]#dev:}")
		[ -z "$why" ] || usage_error "$why"
	else
		need_wbdisk
	fi
}

# disk_setup(fs, [mount options, [attribute=value...]]) - MNT is an empty
# directory on the disk of the options, DISK_* say which.  Call disk_check first.
function disk_setup() {
	local fs=$1 options=${2:-} profile pairs=()
	shift $(($# < 2 ? $# : 2))
	if [ -n "${OPT[dir]}" ]; then
		DISK_KIND=dir DISK_DEV=
		MNT=$(mktemp -d "${OPT[dir]}/writeback.XXXXXX") || die "cannot write below ${OPT[dir]}"
		DISK_NAME=$(disk_of "/sys/dev/block/$(stat -c %Hd:%Ld "$MNT")")
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
		profile=$(wbdisk_profile "${OPT[disk]}")
		wbdisk_create test "$profile" "seed=${OPT[seed]}" "$@" "${pairs[@]}" ||
			die "cannot make the disk: $profile $* ${pairs[*]}"
	fi
	DISK_NAME=$(disk_of "/sys/class/block/${DISK_DEV##*/}")
	mkfs_mount "$fs" "$DISK_DEV" "$MNT" "$options" ||
		die "cannot make or mount $fs on $DISK_DEV"
}

# disk_teardown() - undo disk_setup
function disk_teardown() {
	case $DISK_KIND in
	dir) rm -rf "$MNT" ;;
	dev) umount_fs "$MNT" ;;
	wbdisk) umount_fs "$MNT" && wbdisk_destroy test ;;
	esac
}

# disk_write_stat(var) - "write requests, sectors of 512 B" since the disk exists
function disk_write_stat() {
	local f
	printf -v "$1" '0 0'
	[ -n "$DISK_NAME" ] || return 0
	read -ra f < "/sys/block/$DISK_NAME/stat"
	printf -v "$1" '%s %s' "${f[4]}" "${f[6]}"
}
