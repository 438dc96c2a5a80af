#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Private instances of the kernel's tracing: what they record and how is nobody
# else's, and goes with them.

readonly TRACING=/sys/kernel/tracing

# trace_instance(name, [KiB]) - make one, with a buffer of this size per CPU; it is
# removed at exit.  Its directory is TRACING/instances/NAME; 1 without tracing.
trace_instance() {
	local dir=$TRACING/instances/$1
	[ -d "$TRACING/events" ] || mount -t tracefs tracefs "$TRACING" 2> /dev/null
	mkdir -p "$dir" 2> /dev/null && [ -d "$dir/events" ] || return
	on_exit trace_remove "$dir"
	[ -z "${2:-}" ] || echo "$2" > "$dir/buffer_size_kb"
}

trace_remove() {
	[ ! -d "$1" ] || rmdir "$1"
}

# trace_event(instance's directory, group/event, [condition]) - record it, where the
# condition holds; 1 if there is no such event
trace_event() {
	local event=$1/events/$2
	[ -d "$event" ] || return
	[ -z "${3:-}" ] || echo "$3" > "$event/filter" || return
	echo 1 > "$event/enable"
}
