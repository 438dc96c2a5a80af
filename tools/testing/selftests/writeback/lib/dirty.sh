#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Dirty page limits: what the kernel derives them from, how they are sampled,
# how long a writer slept for them.

PAGE=$(getconf PAGE_SIZE 2> /dev/null || echo 4096)
NCPU=$(grep -c ^processor /proc/cpuinfo)
# Pages that the counters may be off per CPU: mm/vmstat.c lets a per-CPU counter
# be 125 behind, and one folio, at most a PMD's 512 pages, is dirtied at once.
SLACK_PAGES=$((NCPU * (125 + 512)))
# shellcheck disable=SC2034 # for the cases
readonly PAGE NCPU SLACK_PAGES
readonly SAMPLE_MS=10
# shellcheck source=../lib/tracefs.sh
. "$WB_DIR/lib/tracefs.sh"
TRACE_INSTANCE=$TRACING/instances/writeback-selftest

# vmstat(name) - a counter of /proc/vmstat
vmstat() {
	awk -v name="$1" '$1 == name { print $2 }' /proc/vmstat
}

# dirty_bytes() - dirty and under writeback now
dirty_bytes() {
	echo $((($(vmstat nr_dirty) + $(vmstat nr_writeback)) * PAGE))
}

# mem_total() - bytes
mem_total() {
	awk '$1 == "MemTotal:" { printf "%.0f", $2 * 1024 }' /proc/meminfo
}

# ratio_factor(percent) - share of dirtyable memory that domain_dirty_limits()
# makes of a ratio: a whole number of 4096ths
ratio_factor() {
	calc "int($1 * 4096 / 100) / 4096"
}

# set_limits(kind, background, limit) - kind is ratio or bytes; dies if refused
set_limits() {
	if ! set_dirty "background_$1" "$2" || ! set_dirty "$1" "$3"; then
		die "cannot set vm.dirty_background_$1=$2 and vm.dirty_$1=$3"
	fi
}

# dirtyable(var) - bytes that ratios are taken of, from the limit of a known ratio
#	Leaves dirty_ratio at 20, dirty_background_ratio at 10.
dirtyable() {
	set_limits ratio 10 20
	printf -v "$1" '%s' "$(awk -v pages="$(vmstat nr_dirty_threshold)" -v page="$PAGE" \
		-v f="$(ratio_factor 20)" 'BEGIN { printf "%.0f", pages * page / f }')"
}

# sampler_start(csv, [ms]) / sampler_stop() - counters and limits every SAMPLE_MS
sampler_start() {
	"$WB_DIR/vmstat_sampler" "${2:-$SAMPLE_MS}" "$1" &
	SAMPLER_PID=$!
}

sampler_stop() {
	kill -TERM "$SAMPLER_PID"
	wait "$SAMPLER_PID"
}

# sampler_summary(csv, var) - an associative array, in pages:
#	dirty	largest nr_dirty + nr_writeback
#	limit background freerun	limits in that sample
#	max_limit	largest limit of all samples
#	mean	mean of dirty from when it first reached freerun
sampler_summary() {
	local name value
	while read -r name value; do
		printf -v "$2[$name]" '%s' "$value"
	done < <(awk -F, '
		NR == 1 { next }
		{
			dirty = $2 + $3
			freerun = ($4 + $5) / 2
			if (dirty > max || NR == 2) {
				max = dirty; limit = $4; background = $5; at_freerun = freerun
			}
			if ($4 > max_limit) max_limit = $4
			if (dirty >= freerun) reached = 1
			if (reached) { sum += dirty; n++ }
		}
		END {
			printf "dirty %.0f\nlimit %.0f\nbackground %.0f\nfreerun %.0f\n", max, limit, background, at_freerun
			printf "max_limit %.0f\nmean %.0f\nsamples %d\n", max_limit, n ? sum / n : 0, NR - 1
		}' "$1")
}

# mark(name, file) - add "name seconds" to file, by the clock of the trace: puts what
# a sampler that starts now writes beside the sleeps
mark() {
	local seconds
	read -r seconds _ < /proc/uptime
	echo "$1 $seconds" >> "$2"
}

# throttle_trace_start(KiB, [name]) - record every planned sleep of dd, or of tasks of
# that name, in balance_dirty_pages(), in a buffer of KiB per CPU ("": the kernel's default)
#	Returns 1 if the kernel has no such tracepoint.
throttle_trace_start() {
	# The event also comes without a sleep, then with a pause of 0 or less.
	trace_instance "${TRACE_INSTANCE##*/}" "$1" && echo mono > "$TRACE_INSTANCE/trace_clock" &&
		trace_event "$TRACE_INSTANCE" writeback/balance_dirty_pages "pause > 0 && comm == \"${2:-dd}\""
}

throttle_trace_clear() {
	echo > "$TRACE_INSTANCE/trace"
}

# throttle_trace_sum(file, [cgroup's directory]) - "ms sleeps" since the last clear,
# of that cgroup; the events go to file
throttle_trace_sum() {
	local only=
	[ -z "${2:-}" ] || only=" cgroup_ino=$(stat -c %i "$2")\$"
	grep -v '^#' "$TRACE_INSTANCE/trace" | grep "$only" > "$1"
	awk 'match($0, / pause=[0-9]+/) { ms += substr($0, RSTART + 7, RLENGTH - 7); n++ }
		END { print ms + 0, n + 0 }' "$1"
}

# drop_file(file) - remove it and what the cache holds, so that rows are alike
#	XFS frees the blocks of a removed file later, and a writer that gets them
#	again waits for the journal.  Truncated, they are free for use after sync.
drop_file() {
	[ ! -e "$1" ] || truncate -s 0 "$1"
	rm -f "$1"
	sync
	echo 1 > "$VM/drop_caches"
}

# throttled_us(source) - what the kernel has counted of sleeps for dirty memory so
# far, in microseconds; nothing if it does not count them
#	source - /proc/vmstat or a cgroup's memory.stat, which have the causes
throttled_us() {
	awk '/^dirty_throttled_(global|cgroup|device)_usec / { us += $2; n++ } END { if (n) print us }' "$1"
}

# longest_block(file) - longest time in ms that one call of balance_dirty_pages()
# held a writer, from the events that throttle_trace_sum() left
longest_block() {
	awk 'match($0, / paused=[0-9]+ pause=[0-9]+/) {
			split(substr($0, RSTART, RLENGTH), word, /[ =]/)
			ms = word[3] + word[5]
			if (ms > max) max = ms
		}
		END { print max + 0 }' "$1"
}
