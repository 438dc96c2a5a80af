#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The tracers a user would run by hand next to a case: xfsdist or ext4dist and
# biolatency of libbpf-tools, and perf stat with software events.

TRACE_PIDS=()
TRACE_NAMES=()
TRACE_MISSING=()
TRACE_FILES=()

# trace_says(regex, file, pid) - the tool has said that it traces, or is gone
trace_says() {
	grep -q "$1" "$2" || ! kill -0 "$3" 2> /dev/null
}

# trace_tool(label, ready regex, suffix, cmd...) - start one, wait until it traces
trace_tool() {
	local label=$1 ready=$2 out=$WB_OUT/$1$3.txt pid
	shift 3
	stdbuf -oL "$@" > "$out" 2>&1 &
	pid=$!
	# Attaching takes seconds in an emulated guest.
	if [ -n "$ready" ] && ! loop_until trace_says "$ready" "$out" "$pid"; then
		note "$label does not start"
	fi
	if kill -0 "$pid" 2> /dev/null; then
		TRACE_PIDS+=("$pid")
		TRACE_NAMES+=("$label")
		TRACE_FILES+=("$out")
	else
		TRACE_MISSING+=("$label")
		note "$label: $(tail -n 1 "$out")"
	fi
}

# trace_start(fs, suffix) - start what this system has
trace_start() {
	local dist=xfsdist
	[ "$1" = xfs ] || dist=ext4dist
	TRACE_PIDS=() TRACE_NAMES=() TRACE_MISSING=() TRACE_FILES=()
	if [ -r /sys/kernel/btf/vmlinux ]; then
		if command -v "$dist" > /dev/null; then
			trace_tool "$dist" Tracing "$2" "$dist"
		else
			TRACE_MISSING+=("$dist")
		fi
		if command -v biolatency > /dev/null; then
			trace_tool biolatency Tracing "$2" biolatency
		else
			TRACE_MISSING+=(biolatency)
		fi
	else
		TRACE_MISSING+=("$dist and biolatency (no BTF)")
	fi
	if command -v perf > /dev/null; then
		trace_tool perf "" "$2" perf stat -a -e 'writeback:*,block:*'
		sleep 1
	else
		TRACE_MISSING+=(perf)
	fi
}

# trace_stop() - end them, print what they saw
trace_stop() {
	local pid file
	for pid in "${TRACE_PIDS[@]}"; do
		kill -INT "$pid"
	done
	for pid in "${TRACE_PIDS[@]}"; do
		wait "$pid"
	done
	for file in "${TRACE_FILES[@]}"; do
		note "${file##*/}:"
		note_file "$file"
	done
}

# trace_result() - one KTAP result
trace_result() {
	local file
	if [ "${#TRACE_NAMES[@]}" -eq 0 ]; then
		skip_test "traced with libbpf-tools and perf" "there is no ${TRACE_MISSING[*]}"
		return
	fi
	for file in "${TRACE_FILES[@]}"; do
		grep -q -e '|\*' -e 'writeback:' "$file" || break
		file=
	done
	check "traced with ${TRACE_NAMES[*]}${TRACE_MISSING[*]:+, without ${TRACE_MISSING[*]}}" \
		[ -z "$file" ]
}
