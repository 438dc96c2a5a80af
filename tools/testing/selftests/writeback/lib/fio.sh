#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Random readers (fio), writers (dd), and what they measured.

# measures_load() - declare what read-latency.sh measures, each with a suffix where
# there are several runs
measures_load() {
	measures 'read_P[_X], read_max[_X]' us lower \
		"completion latency of the readers (fio's clat): percentile, or maximum"
	measures 'read_due_P[_X], read_due_max[_X]' us lower \
		"--reader=open: the same since each read was due, with what a stalled reader waits before it asks"
	measures 'read_late[_X]' count lower "--reader=open: reads issued 1 ms or more after they were due"
	measures 'read_iops[_X]' iops higher "reads per second, all readers"
	measures 'write_mbps[_X]' MB/s higher "the writer's own figure, 10^6 bytes per second of its run"
	measures 'drain_s[_X]' s lower "from the first write to the end of sync"
	measures 'fsync_P[_X], fsync_max[_X]' us lower \
		"latency of fsync(2) of 4 KiB appended: --probe=fsync"
	measures 'fsync_count[_X]' count - "how many fsyncs there were"
	measures 'direct_P[_X], direct_max[_X]' us lower \
		"latency of write(2) of 4 KiB with O_DIRECT and O_DSYNC: --probe=direct"
	measures 'direct_count[_X]' count - "how many of these writes there were"
	measures 'cpu_idle[_X]' percent - \
		"share of the guest's CPU time spent idle; near 0 the CPU and not the disk was measured"
	measures 'disk_inflight_write_peak_bytes[_X]' bytes - \
		"most bytes of writes inside the modelled disk at once; of two disks, the larger"
	measures 'disk_write_bytes[_X]' bytes - "what the modelled disk was sent; of two disks, the sum"
	measures 'disk_writes[_X], disk_flushes[_X]' count - "the same in requests"
}

# dd_rate(log) - print "bytes seconds" from dd's last line; 1 if it is not there
dd_rate() {
	sed -n 's/^\([0-9]*\) bytes.* copied, \([0-9.e+-]*\) s,.*/\1 \2/p' "$1" | grep .
}

# dd_mbps(log) - dd's own figure with more digits, in 10^6 B/s; nothing if dd failed
dd_mbps() {
	dd_rate "$1" | awk '$2 > 0 { printf "%.6g", $1 / $2 / 1e6 }'
}

# json_values(json, var, filter) - "name value" lines of a jq filter, as an
# associative array
#	pXX of the filter is every percentile that its input has, in us.
json_values() {
	local name value
	while read -r name value; do
		printf -v "$2[$name]" '%s' "$value"
	done < <(jq -r 'def pXX: .percentile // {} | to_entries[] |
		"p\(.key | sub("\\.?0+$"; "") | sub("\\."; "_")) \(.value / 1000)"; '"$3" "$1")
}

# fio_values(json, var) - the numbers of a group_reporting read job: p50 p90 p99
# p99_9 p99_95 p99_99 max (us), iops, ios, error, ms (time the readers ran)
fio_values() {
	# shellcheck disable=SC2016 # jq's variables
	json_values "$1" "$2" '.jobs[0] | .error as $error | .read |
		(.clat_ns | pXX, "max \(.max / 1000)"),
		"iops \(.iops)", "ios \(.total_ios)", "ms \(.runtime)", "error \($error)"'
}

# fio_sync_values(json, var) - the same of the fsyncs of a job: p50 p99 ... max (us),
# count, error, ms
fio_sync_values() {
	# shellcheck disable=SC2016 # jq's variables
	json_values "$1" "$2" '.jobs[0] | .error as $error | .write.runtime as $ms | .sync |
		(.lat_ns | pXX, "max \(.max / 1000)"),
		"count \(.total_ios)", "ms \($ms)", "error \($error)"'
}

# fio_write_values(json, var) - the same of the writes of a job
fio_write_values() {
	# shellcheck disable=SC2016 # jq's variables
	json_values "$1" "$2" '.jobs[0] | .error as $error | .write |
		(.clat_ns | pXX, "max \(.max / 1000)"),
		"count \(.total_ios)", "ms \(.runtime)", "error \($error)"'
}

# fio_bins(json) - print every latency that occurred and how often: "us,count"
fio_bins() {
	echo "us,count"
	jq -r '.jobs[0].read.clat_ns.bins | to_entries | map([(.key | tonumber), .value]) |
		sort_by(.[0])[] | "\(.[0] / 1000),\(.[1])"' "$1"
}

# log2_hist(unit) - the histogram of bcc and libbpf-tools from "value,count" lines
log2_hist() {
	awk -F, -v unit="$1" '
	$1 + 0 == $1 {
		slot = 0
		for (v = int($1); v > 1; v = int(v / 2))
			slot++
		count[slot] += $2
		if (slot > top) top = slot
		if (count[slot] > most) most = count[slot]
	}
	END {
		if (!most) exit
		printf "     %-19s : count    distribution\n", unit
		for (slot = 0; slot <= top; slot++) {
			low = slot ? 2 ^ slot : 0
			high = 2 ^ (slot + 1) - 1
			bar = sprintf("%*s", int(count[slot] * 40 / most), "")
			gsub(/ /, "*", bar)
			printf "%10d -> %-10d : %-8d |%-40s|\n", low, high, count[slot], bar
		}
	}'
}

# cpu_snapshot(var) - "idle total" in ticks of all CPUs since boot
cpu_snapshot() {
	local f total=0 i
	read -ra f < /proc/stat
	for ((i = 1; i <= 8; i++)); do
		((total += f[i]))
	done
	printf -v "$1" '%d %d' $((f[4] + f[5])) "$total"
}

# cpu_idle_pct(before, after) - share of CPU time between two snapshots spent idle
cpu_idle_pct() {
	awk -v a="$1 $2" 'BEGIN { split(a, s, " ")
		printf "%.4g", (s[4] > s[2] ? 100 * (s[3] - s[1]) / (s[4] - s[2]) : 0) }'
}
