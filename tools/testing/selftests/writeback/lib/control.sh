#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The control loop of writeback throttling over time, for "wb plot control": what
# the kernel says about it (wbt:wbt_bytes; any other event of wbt: is kept as
# text), every write that enters or leaves the modelled disk, and how far dd is.
# All in one trace, whose clock is CLOCK_MONOTONIC, as in fio's log of reads.

# shellcheck source=../lib/tracefs.sh
. "$WB_DIR/lib/tracefs.sh"

readonly CONTROL_TRACE=$TRACING/instances/writeback-control
readonly CONTROL_KIB=16384	# a write is two events of some 80 bytes
readonly CONTROL_SAMPLE_S=.02

# control_start() - begin to record; 1 if this kernel has no tracing
control_start() {
	local event
	trace_instance "${CONTROL_TRACE##*/}" "$CONTROL_KIB" &&
		echo mono > "$CONTROL_TRACE/trace_clock" || return
	for event in wbdisk/wbdisk_queue wbdisk/wbdisk_complete; do
		[ ! -d "$CONTROL_TRACE/events/$event" ] ||
			trace_event "$CONTROL_TRACE" "$event" 'op == 1' || return
	done
	trace_event "$CONTROL_TRACE" wbt/wbt_bytes || trace_event "$CONTROL_TRACE" wbt
}

# control_mark(text...) - put a line into the recording, if there is one
control_mark() {
	[ "${OPT[trace-control]}" = 0 ] || echo "control $*" > "$CONTROL_TRACE/trace_marker"
}

# control_follow(pid) - note what that process has written, until it ends
control_follow() {
	local key value never
	# Nothing ever comes from it: a sleep without a fork.
	exec {never}<> <(:)
	while kill -0 "$1" 2> /dev/null; do
		while read -r key value; do
			[ "$key" != wchar: ] || control_mark "writer $value"
		done 2> /dev/null < "/proc/$1/io"
		read -rt "$CONTROL_SAMPLE_S" -u "$never"
	done
	exec {never}>&-
}

# control_stop(csv) - end the recording: "seconds,event,value,..." lines
#	queue,BYTES,AHEAD	a write enters the disk, so many bytes of writes ahead
#	complete,BYTES,NS	a write leaves it
#	wbt_bytes,NAME=VALUE,...	one window of the kernel's control loop
#	writer,BYTES		what dd has written so far
#	mark,WHAT		start and written of dd, synced of sync(1)
#	wbt_...,TEXT		anything else that writeback throttling said
control_stop() {
	echo 0 > "$CONTROL_TRACE/tracing_on"
	awk '
	!match($0, / [0-9]+\.[0-9]+: [a-z_]+: /) { next }
	{
		split(substr($0, RSTART + 1, RLENGTH - 2), head, ": ")
		text = substr($0, RSTART + RLENGTH)
		sub(/:$/, "", head[2])
		n = split(text, word, " ")
	}
	head[2] == "wbdisk_queue" {
		fua = word[3] == "fua"
		print head[1] ",queue," word[5 + fua] "," word[7 + fua]
		next
	}
	head[2] == "wbdisk_complete" {
		print head[1] ",complete," word[5] "," word[8]
		next
	}
	head[2] == "wbt_bytes" {
		line = head[1] ",wbt_bytes"
		for (i = 2; i <= n; i++)
			line = line "," word[i]
		print line
		next
	}
	head[2] == "tracing_mark_write" && word[1] == "control" {
		print head[1] "," (word[2] == "writer" ? "writer," word[3] : "mark," word[2])
		next
	}
	head[2] ~ /^wbt_/ {
		gsub(/,/, ";", text)
		print head[1] "," head[2] "," text
	}' "$CONTROL_TRACE/trace" > "$1"
	trace_remove "$CONTROL_TRACE"
	# fio writes three logs of the reads; for psync total and completion are the same.
	rm -f "${1%/*}"/control-read*_{lat,slat}.log
}
