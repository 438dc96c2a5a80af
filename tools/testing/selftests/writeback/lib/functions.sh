#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Shell functions for the writeback selftests: KTAP, saved settings, cleanup.  What
# a case says about itself, and its options, are in case.sh, disks and file
# systems in disk.sh, both of which this file sources.  A case looks like this
# ("./new FOLDER/NAME" writes one):
#
#	. "$(dirname "$0")/../lib/functions.sh"
#	about title "what the case shows"
#	about replays "none: what it is for"
#	about programs fio jq
#	axis_disk sata				# --disk --disk-set --dir --erase
#	axis fs xfs 'xfs|ext4' "file system"
#	measures write_mbps MB/s higher "speed of its writer"
#	case_parse "$@"				# may exit: 0 help, 2 bad option
#	wb_begin				# header, root, programs; may SKIP
#	ktap_set_plan 2
#	disk_setup "${OPT[fs]}"			# MNT is mounted, DISK_* are set
#	metric write_mbps 314			# before the result it belongs to
#	check "readers ran" [ "$n" -gt 0 ]
#	check_dmesg				# one result of its own
#	ktap_finished
#
# Every function returns 0 on success unless it says otherwise.

WB_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly EXIT_USAGE=2 EXIT_SKIP=4

RETRY_FOR=60		# seconds
RETRY_INTERVAL=.1	# seconds

# shellcheck source=../lib/case.sh
. "$WB_DIR/lib/case.sh"

# ---- begin, end, skip ------------------------------------------------------

CLEANUP=()

# on_exit(cmd...) - run cmd at exit, last registered first, after every background
# process was ended
on_exit() {
	CLEANUP+=("$(printf '%q ' "$@")")
}

run_cleanup() {
	local i pids
	trap - EXIT
	trap '' INT TERM HUP
	pids=$(jobs -p)
	# shellcheck disable=SC2086 # one word per process
	[ -z "$pids" ] || { kill $pids; wait; } 2> /dev/null
	for ((i = ${#CLEANUP[@]} - 1; i >= 0; i--)); do
		eval "${CLEANUP[i]}"
	done
	CLEANUP=()
}

# skip_all(reason...) - nothing can be tested here; only before ktap_set_plan
skip_all() {
	ktap_skip_all "$@"
	exit "$EXIT_SKIP"
}

# die(message...) - the case cannot go on
die() {
	ktap_exit_fail_msg "$@"
}

# wb_begin() - KTAP header, cleanup trap, needs root and the case's programs
wb_begin() {
	local program helpers=$WB_DIR/../kselftest/ktap_helpers.sh
	if [ ! -r "$helpers" ]; then
		echo "$0: no $helpers: run from a kernel tree or an installed kselftest tree" >&2
		exit 1
	fi
	# shellcheck source=/dev/null
	. "$helpers"
	ktap_print_header
	[ "$(id -u)" -eq 0 ] || skip_all "must be run as root"
	for program in "${CASE_PROGRAMS[@]}" "${CASE_OWN_PROGRAMS[@]}"; do
		command -v "$program" > /dev/null || skip_all "needs $program"
	done
	trap run_cleanup EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	if [ -z "${WB_OUT:-}" ]; then
		WB_OUT=$(mktemp -d /tmp/writeback.XXXXXX) || skip_all "no room below /tmp"
		on_exit rm -rf "$WB_OUT"
	fi
	mkdir -p "$WB_OUT" || skip_all "cannot write $WB_OUT"
	export WB_OUT
	dmesg_mark
}

# stop_tasks(pid...) - end background tasks, without the shell's word about it
stop_tasks() {
	kill "$@"
	wait "$@" 2> /dev/null
}

# tasks_end(seconds, pid...) - are these tasks gone, or go they in time?
tasks_end() {
	local end=$((SECONDS + $1))
	shift
	# One of them is enough for kill to succeed.
	while kill -0 "$@" 2> /dev/null; do
		if [ $SECONDS -ge $end ]; then
			note "still there: $(ps -o pid,stat,wchan,args -p "$(IFS=,; echo "$*")" 2> /dev/null | tail -n +2)"
			return 1
		fi
		sleep .2
	done
}

# loop_until(cmd...) - run cmd until it succeeds; 1 after a minute of failure
loop_until() {
	local loop_end=$((SECONDS + RETRY_FOR))
	while true; do
		"$@" && return 0
		((SECONDS >= loop_end)) && return 1
		sleep "$RETRY_INTERVAL"
	done
}

# ---- reporting -------------------------------------------------------------

# note(text...) - diagnostic line, blanks kept
note() {
	printf '# %s\n' "$*"
}

# alive(what) - in a loop that may be long: a note twice a minute, since whoever runs
# the case takes silence for a hang
ALIVE=30
alive() {
	((SECONDS >= ALIVE)) || return 0
	ALIVE=$((SECONDS + 30))
	note "$1 goes on at $SECONDS s"
}

# note_file(file) - a whole file as diagnostics
note_file() {
	sed 's/^/# /' "$1"
}

# check(description, cmd...) - one KTAP result: pass if cmd succeeds
check() {
	local description=$1
	shift
	if "$@"; then
		ktap_test_pass "$description"
	else
		ktap_test_fail "$description"
	fi
}

# skip_test(description, reason) - one KTAP result: not tested here
skip_test() {
	__ktap_test ok "$1" "SKIP $2"
	KTAP_CNT_SKIP=$((KTAP_CNT_SKIP + 1))
}

readonly AWK_ABS='function abs(x) { return x < 0 ? -x : x }'

# calc(expression) - print the value of a floating point expression of awk, or abs()
calc() {
	awk "$AWK_ABS BEGIN { printf \"%.6g\", ($1) }"
}

# holds(expression) - does a floating point comparison hold?  Says so if not.
holds() {
	awk "$AWK_ABS BEGIN { exit !($1) }" && return 0
	note "does not hold: $1"
	return 1
}

# now_us(var) - microseconds since the epoch, without a fork
now_us() {
	printf -v "$1" '%s' "${EPOCHREALTIME/[.,]/}"
}

# ---- kernel messages -------------------------------------------------------

SPLAT='BUG:|WARNING:|Oops|general protection fault|INFO: task .* blocked|Call Trace|KASAN|UBSAN|possible circular|possible recursive|self-detected stall|soft lockup|divide error'

# What KCSAN finds between two functions of files that the series does not touch.
KNOWN_RACES='atime_needs_update / inode_update_timestamps|xas_clear_mark / xas_find_marked'
KNOWN_RACES+='|tick_nohz_handler / tick_nohz_idle_got_tick|xfs_file_write_iter / xfs_file_write_iter'
KNOWN_RACES+='|xfs_log_reserve / xfs_log_reserve|__xfs_trans_commit / __xfs_trans_commit'
KNOWN_RACES+='|copy_page_to_iter / folio_batch_move_lru|folio_set_bh / lru_add'

# dmesg_mark() - start of the messages that dmesg_new looks at
dmesg_mark() {
	DMESG_MARK="writeback selftest ${0##*/} $$ $RANDOM$RANDOM"
	echo "$DMESG_MARK" > /dev/kmsg
}

# dmesg_new() - print what the kernel said since dmesg_mark, or everything it still
# knows if that was overwritten
dmesg_new() {
	dmesg | awk -v mark="$DMESG_MARK" '
		{ line[NR] = $0 }
		index($0, mark) { start = NR }
		END { for (i = start + 1; i <= NR; i++) print line[i] }'
}

# check_dmesg() - one KTAP result: no splat since dmesg_mark
#	A case appends to SPLAT what else it counts as a failure.
check_dmesg() {
	local found
	found=$(dmesg_new | grep -E "$SPLAT" |
		grep -E -v "KCSAN: data-race in ($KNOWN_RACES)$" | head -n 20)
	[ -z "$found" ] || printf '%s\n' "$found" | sed 's/^/# dmesg: /'
	check "no kernel splat" [ -z "$found" ]
}

# case_parts(name...) - the option --part: one of these, or all; run_parts() runs them
case_parts() {
	CASE_PARTS=("$@")
	axis part all "all|$(IFS='|'; echo "$*")" "one part, or all"
}

# run_parts() - test_PART of the part that --part names or of all, each with as many
# results as RESULTS says; all of the case after wb_begin, with plan and end
run_parts() {
	local part plan=1 chosen=("${OPT[part]}")
	[ "${OPT[part]}" != all ] || chosen=("${CASE_PARTS[@]}")
	for part in "${chosen[@]}"; do
		plan=$((plan + ${RESULTS[$part]}))
	done
	ktap_set_plan "$plan"
	for part in "${chosen[@]}"; do
		"test_$part"
	done
	check_dmesg
	ktap_finished
}

# ---- settings that are put back --------------------------------------------

declare -A SAVED

# save_value(file) - put the present content of a sysfs or procfs file back at exit
save_value() {
	local value
	[ -z "${SAVED[$1]+set}" ] || return 0
	value=$(value_of "$1") || return
	SAVED[$1]=$value
	on_exit restore_value "$1"
}

# value_of(file) - content of a sysfs or procfs file; of a choice such as "a [b] c",
# as schedulers are, the word in brackets
value_of() {
	local value
	value=$(< "$1") || return
	[[ $value =~ \[([^]]+)\] ]] && value=${BASH_REMATCH[1]}
	echo "$value"
}

restore_value() {
	# The file goes with its disk.
	[ ! -e "$1" ] || echo "${SAVED[$1]}" > "$1"
}

# set_value(file, value) - write, and put the old value back at exit
#	Returns 1 if the kernel refuses the value.
set_value() {
	save_value "$1" && { echo "$2" > "$1"; } 2> /dev/null
}

readonly VM=/proc/sys/vm
DIRTY_SAVED=

# set_dirty(knob, value) - write vm.dirty_<knob>; all six are put back at exit
#	knob - ratio background_ratio bytes background_bytes
#	       expire_centisecs writeback_centisecs
set_dirty() {
	local knob
	if [ -z "$DIRTY_SAVED" ]; then
		for knob in bytes ratio background_bytes background_ratio \
			    expire_centisecs writeback_centisecs; do
			SAVED[dirty_$knob]=$(< "$VM/dirty_$knob")
		done
		DIRTY_SAVED=1
		on_exit restore_dirty
	fi
	{ echo "$2" > "$VM/dirty_$1"; } 2> /dev/null
}

# Of a ratio and its bytes one is in force; writing the one that reads 0 would
# clear the other.
restore_dirty() {
	local kind
	for kind in "" background_; do
		if [ "${SAVED[dirty_${kind}bytes]}" != 0 ]; then
			echo "${SAVED[dirty_${kind}bytes]}" > "$VM/dirty_${kind}bytes"
		else
			echo "${SAVED[dirty_${kind}ratio]}" > "$VM/dirty_${kind}ratio"
		fi
	done
	echo "${SAVED[dirty_expire_centisecs]}" > "$VM/dirty_expire_centisecs"
	echo "${SAVED[dirty_writeback_centisecs]}" > "$VM/dirty_writeback_centisecs"
}

# shellcheck source=../lib/disk.sh
. "$WB_DIR/lib/disk.sh"
