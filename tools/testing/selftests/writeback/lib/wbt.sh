#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the cases about writeback throttling share: the queue's attributes, the
# trace of their disks, and tasks in the background.

# shellcheck source=../lib/tracefs.sh
. "$WB_DIR/lib/tracefs.sh"

# queue_set(attribute, value) - of every modelled disk
queue_set() {
	local name
	for name in "${DISK_LOWER[@]}"; do
		{ echo "$2" > "/sys/block/$name/queue/$1"; } 2> /dev/null && continue
		note "$name: cannot set $1 to $2"
		return 1
	done
}

# need_policy() - skip the whole case where the disk can be throttled by requests only
need_policy() {
	[ -e "/sys/block/$DISK_NAME/queue/wbt_policy" ] ||
		skip_all "this kernel has no queue/wbt_policy: it throttles writeback by requests only"
}

# lay_out(file, MiB) - its blocks are there beforehand, nothing is dirty
lay_out() {
	dd if=/dev/zero of="$MNT/$1" bs=1M count="$2" conv=fsync status=none ||
		die "cannot write $MNT/$1"
}

# swap_off(path) - if it is swapped to
swap_off() {
	! grep -q "^$1 " /proc/swaps || swapoff "$1"
}

# ---- tasks -----------------------------------------------------------------

STARTED=	# the last task that start() started

# start(cmd...) - in the background, without a word
start() {
	"$@" > /dev/null 2>> "$WB_OUT/tasks.err" &
	STARTED=$!
}

BACKGROUND_PIDS=()

# background_start(tasks, MiB) - each writes what is dirty in a file background0,
# background1, ... as the flusher does
background_start() {
	local i
	BACKGROUND_PIDS=()
	for ((i = 0; i < $1; i++)); do
		start xfs_io -c "sync_range -w 0 ${2}m" "$MNT/background$i"
		BACKGROUND_PIDS+=("$STARTED")
	done
}

# ---- the trace -------------------------------------------------------------

TRACE=		# the case's own instance
TRACE_EVENTS=()

# trace_open(name, KiB, group/event...) - record these events, in a buffer of this
# size; skips the case where there is none of that name
trace_open() {
	local event
	trace_instance "$1" "$2" || skip_all "needs tracefs in $TRACING"
	TRACE=$TRACING/instances/$1
	TRACE_EVENTS=("${@:3}")
	for event in "${TRACE_EVENTS[@]}"; do
		trace_event "$TRACE" "$event" || skip_all "needs the trace event $event"
	done
}

# trace_disks([condition]) - show the modelled disks of now, and start anew
#	condition - that events of the block layer must meet, too
trace_disks() {
	local name dev devs="" names="" event filter
	for name in "${DISK_LOWER[@]}"; do
		IFS=: read -r -a dev < "/sys/block/$name/dev"
		devs+="${devs:+ || }dev == $((dev[0] << 20 | dev[1]))"
		names+="${names:+ || }name == \"${dev[0]}:${dev[1]}\""
	done
	for event in "${TRACE_EVENTS[@]}"; do
		case $event in
		wbt/*) filter=$names ;;
		block/*) filter="($devs)${1:+ && $1}" ;;
		*) filter=$devs ;;
		esac
		echo "$filter" > "$TRACE/events/$event/filter"
	done
	trace_clear
}

trace_clear() {
	echo > "$TRACE/trace"
}

# events() - one line "name seconds pid rest" for each event so far
events() {
	awk '!/^#/ {
		for (i = 1; i <= NF && $i !~ /^(block|wbt|wbdisk)_[a-z_]+:$/; i++)
			;
		if (i > NF)
			next
		name = $i; sub(/:$/, "", name)
		time = $(i - 1); sub(/:$/, "", time)
		pid = $1; sub(/.*-/, "", pid)
		rest = ""
		while (++i <= NF)
			rest = rest " " $i
		print name, time, pid rest
	}' "$TRACE/trace"
}
