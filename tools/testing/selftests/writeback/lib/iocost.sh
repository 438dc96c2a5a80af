#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# io.cost, the I/O controller of cgroup v2.  It leaves what the root cgroup does
# alone, so readers and writer get a cgroup each, of the same weight.  Buffered
# writes are charged to the writer only with the memory controller on as well.

readonly CGROUP=/sys/fs/cgroup

# iocost_check() - skip the whole case if this kernel or system lacks io.cost
iocost_check() {
	[ -e "$CGROUP/io.cost.qos" ] || skip_all "--iocost=on: no io.cost below $CGROUP"
	{ echo "+io +memory" > "$CGROUP/cgroup.subtree_control"; } 2> /dev/null ||
		skip_all "--iocost=on: cannot enable the controllers io and memory"
	if ! group_make readers || ! group_make writer; then
		skip_all "--iocost=on: cannot make cgroups below $CGROUP"
	fi
}

# group_make(name) - a cgroup, gone again at exit
group_make() {
	mkdir -p "$CGROUP/writeback-$1" && on_exit rmdir "$CGROUP/writeback-$1"
}

# group_enter(name) - move this (sub)shell there, if --iocost=on made it
group_enter() {
	[ "${OPT[iocost]}" = off ] || echo "$BASHPID" > "$CGROUP/writeback-$1/cgroup.procs"
}

# iocost_enable(disk) - with the kernel's defaults for what it takes the disk for;
# this turns writeback throttling off.  1 if it did not take.
iocost_enable() {
	local dev
	dev=$(< "/sys/block/$1/dev")
	on_exit iocost_disable "$dev"
	{ echo "$dev enable=1" > "$CGROUP/io.cost.qos"; } 2> /dev/null &&
		grep -q "^$dev enable=1 " "$CGROUP/io.cost.qos" && return 0
	note "cannot enable io.cost on $1"
	return 1
}

# Modelled disks take their settings with them.
iocost_disable() {
	[ ! -e "/sys/dev/block/$1" ] || echo "$1 enable=0" > "$CGROUP/io.cost.qos"
}
