#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Memory cgroups (version 2) for cases about dirty memory, and what the kernel
# says about their writeback.

readonly CGROUPS=/sys/fs/cgroup

# cgroups_enable(controller...) - for the cgroups to come; 1 where that is not possible
cgroups_enable() {
	[ -e "$CGROUPS/cgroup.controllers" ] ||
		mount -t cgroup2 cgroup2 "$CGROUPS" 2> /dev/null
	{ echo "${*/#/+}" > "$CGROUPS/cgroup.subtree_control"; } 2> /dev/null
}

# cgroups_check() - skips the whole case without writeback by cgroup
cgroups_check() {
	cgroups_enable memory io || skip_all "needs cgroup v2 with the controllers memory and io"
}

# cgroup_create(name, [memory.max]) - CGROUP is its directory; gone again at exit
cgroup_create() {
	CGROUP=$CGROUPS/wb-$1
	mkdir "$CGROUP" || return
	on_exit rmdir "$CGROUP"
	[ -z "${2:-}" ] || echo "$2" > "$CGROUP/memory.max"
}

# cgroup_run(name, cmd...) - in a subshell that is a member
cgroup_run() {
	local name=$1
	shift
	(echo "$BASHPID" > "$CGROUPS/wb-$name/cgroup.procs" && "$@")
}

# cgroup_exec(name, cmd...) - the same for a background job: "$!" is the command's
cgroup_exec() {
	echo "$BASHPID" > "$CGROUPS/wb-$1/cgroup.procs" && exec "${@:2}"
}

# cgroup_stat(name, key) - from memory.stat; empty if there is no such line
cgroup_stat() {
	awk -v key="$2" '$1 == key { print $2 }' "$CGROUPS/wb-$1/memory.stat"
}

# bdi_dir() - in sysfs, of the disk of the options, or of /dev/$1
bdi_dir() {
	echo "/sys/block/${1:-$DISK_NAME}/bdi"
}

# bdi_get(attribute, [disk]) / bdi_set(attribute, value, [disk])
bdi_get() {
	cat "$(bdi_dir "${2:-}")/$1"
}

bdi_set() {
	{ echo "$2" > "$(bdi_dir "${3:-}")/$1"; } 2> /dev/null
}

# bdi_debug(file) - of the disk of the options; file is stats or wb_stats
bdi_debug() {
	[ -d /sys/kernel/debug/bdi ] || mount -t debugfs debugfs /sys/kernel/debug 2> /dev/null
	cat "/sys/kernel/debug/bdi/$(< "/sys/block/$DISK_NAME/dev")/$1"
}

# cgroup_wb(name, key) - a number of the cgroup's line in the disk's wb_stats
cgroup_wb() {
	bdi_debug wb_stats | awk -v ino="$(stat -c %i "$CGROUPS/wb-$1")" -v key="$2:" '
		$1 == "WbCgIno:" { mine = $2 == ino }
		mine && $1 == key { print $2 }'
}
