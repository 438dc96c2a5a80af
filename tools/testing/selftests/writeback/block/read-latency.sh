#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Latency of random O_DIRECT readers while one file is written: the report
# "High IO latency during writeback" (linux-block, 2017) in a form that repeats.
#
# fio readers share a 64 MiB file that is on disk beforehand.  0.4 s after they
# start, the writer begins:
#	idle      nothing
#	direct    dd oflag=direct, one request in flight
#	buffered  dd into the page cache, the flusher writes
#	fsync     dd conv=fsync: as buffered, then WB_SYNC_ALL of the whole file,
#		  which writeback throttling lets through at full depth
# All of them use bs=1M and end with sync(1).  write_mbps is dd's own figure;
# drain_s is the time from dd's start to the end of sync.
#
# --probe=fsync appends 4 KiB to a file of its own and syncs it, 100 times a second,
# as a small database does; its latencies are those of fsync(2).  --probe=direct writes
# them with O_DIRECT and O_DSYNC into a file that has its blocks, as the redo log of a
# larger one; direct_* are the latencies of write(2).
#
# --readers=0 leaves the writer alone with the disk: its speed, and no read metrics.
#
# --reader=open issues each read when it is due, by up to 256 threads, where fio's
# readers each wait for their last one; read_due_* are then latencies since that moment.
#
# Readers are rate-limited and SCHED_FIFO by default: on one CPU, waiting for
# the writer's system calls would otherwise be counted as disk latency.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/fio.sh
. "$WB_DIR/lib/fio.sh"
# shellcheck source=../lib/iocost.sh
. "$WB_DIR/lib/iocost.sh"
# shellcheck source=../lib/control.sh
. "$WB_DIR/lib/control.sh"
# shellcheck source=../lib/trace.sh
. "$WB_DIR/lib/trace.sh"

readonly READ_FILE_MIB=64
readonly WRITER_DELAY=0.4	# seconds
# Readers do not wait for the CPU; but of the disk they ask no more than anybody:
# SCHED_FIFO alone would make their I/O RT, for which mq-deadline keeps all other back.
readonly FIRST=(chrt -f 50 ionice -c 2 -n 4)
# fio gives job n the seed n * randseed: small seeds would share their sequences.
readonly FIO_SEED_BASE=1000000
# Replay: the report has 64 ms against 4.4 at p99.95.
readonly REPLAY_FACTOR=5
readonly PROBE_IOPS=100 PROBE_LOG_MIB=8
readonly -A PROBE_VALUES=([fsync]=sync [direct]=write)
readonly PERCENTILES=50:90:99:99.9:99.95:99.99
# --saturate: 4 KiB at 100 MB/s take 41 us, so that the link allows 24400 IOPS
# while a CPU of 10^9 instructions/s could do three times as many.
readonly SATURATE_READERS=20 SATURATE_LINK_MBPS=100 SATURATE_MIB=256

about title "latency of rate-limited random readers while one file is written, then synced"
about replays "Cloudflare 2017: buffered writeback takes reads from 0.8 to 64 ms at p99.95"
about wall 25
about once writer=suite
about programs fio jq awk dd chrt ionice
about kernel BLK_WBT BLK_WBT_MQ MQ_IOSCHED_DEADLINE MQ_IOSCHED_KYBER IOSCHED_BFQ CGROUPS MEMCG \
	BLK_CGROUP BLK_CGROUP_IOCOST BLK_DEV_DM MD BLK_DEV_MD MD_RAID0
axis_disk sata
axis fs xfs 'xfs|ext4|btrfs' "file system of the disk; btrfs has a kernel of its own" main
axis sched none 'none|mq-deadline|kyber|bfq' "I/O scheduler of the disk" main
axis wbt default 'default|off|1..10000000 us' \
	"wbt_lat_usec: the kernel's default, off, or a target for reads in us" main
axis writer buffered 'idle|direct|buffered|fsync|suite' \
	"what writes: nothing, dd with O_DIRECT, plain dd, dd that ends with fsync; suite: idle, direct, buffered with wbt off and on in one guest, and the replay asserted" \
	main alone=suite
axis readers 4 0..64 "number of fio readers (psync, O_DIRECT, 4 KiB, random); 0 = only the writer"
axis reader fio 'fio|open' \
	"fio, whose readers each wait for their last read, or open: each read when it is due"
axis rate 1000 '0..1000000 IOPS' "Poisson rate of each reader; 0 = as fast as they can"
axis mib 1024 '1..16384 MiB' "size of the file written"
axis max-sectors-kb default 'default|4..4096 KiB' "largest request the block layer sends"
axis reader-prio fifo 'fifo|normal' \
	"readers' policy: SCHED_FIFO keeps CPU sharing out of the latency"
axis runtime 4 '1..600 s' "seconds the readers run"
axis policy default 'default|bytes|requests' \
	"wbt_policy, what wbt limits: as the kernel sets it, bytes, or requests, all that a stock kernel has; without the file bytes is skipped"
axis sched-set "" '@pairs' "attributes of the I/O scheduler to set (queue/iosched)"
axis iocost off 'off|on' "io.cost on the disk, readers and writer in a cgroup each; turns wbt off"
axis stack none 'none|linear|raid0' \
	"what the file system is on: the disk, dm-linear over it, a RAID0 of two such disks"
axis trace-control 0 flag \
	"record bytes in flight, limit and every read over time, for 'wb plot control'"
axis probe none 'none|fsync|direct' \
	"beside the writer, 100 times a second: append 4 KiB and fsync, or write them with O_DIRECT and O_DSYNC"
axis saturate 0 flag "20 readers without a rate limit on a link of 100 MB/s" local
axis trace 0 flag "also run xfsdist or ext4dist, biolatency and perf stat" local
measures_load
case_parse "$@"

# queue_set(attribute, value) - of every disk; check that the kernel took it
queue_set() {
	local name
	for name in "${DISK_LOWER[@]}"; do
		queue_set_one "$name" "$@" || return
	done
}

queue_set_one() {
	local file=/sys/block/$1/queue/$2 now
	shift
	if ! set_value "$file" "$2"; then
		note "cannot set $1 to $2"
		return 1
	fi
	now=$(< "$file")
	[[ $now =~ \[([^]]+)\] ]] && now=${BASH_REMATCH[1]}
	[ "$now" = "$2" ] && return 0
	note "$1 is $now after setting it to $2"
	return 1
}

# queue_show(attribute) - its value, or none
queue_show() {
	cat "/sys/block/$DISK_NAME/queue/$1" 2> /dev/null || echo none
}

# queue_setup(wbt) - scheduler and io.cost first: they set wbt to what they want
queue_setup() {
	local name pair pairs
	if [ -z "$DISK_NAME" ]; then
		# There is no queue to set: only what leaves it alone.
		[[ -z ${OPT_GIVEN[sched]:-} && -z ${OPT[sched-set]} && $1 = default &&
		   ${OPT[max-sectors-kb]} = default && ${OPT[policy]} = default && ${OPT[iocost]} = off ]]
		return
	fi
	if [ -z "${OPT[dir]}" ] || [ -n "${OPT_GIVEN[sched]:-}" ]; then
		queue_set scheduler "${OPT[sched]}" || return
	fi
	IFS=, read -ra pairs <<< "${OPT[sched-set]}"
	for pair in "${pairs[@]}"; do
		queue_set "iosched/${pair%%=*}" "${pair#*=}" || return
	done
	if [ "${OPT[iocost]}" = on ]; then
		for name in "${DISK_LOWER[@]}"; do
			iocost_enable "$name" || return
		done
	fi
	case $1 in
	default) ;;
	off) queue_set wbt_lat_usec 0 || return ;;
	*) queue_set wbt_lat_usec "$1" || return ;;
	esac
	# A kernel without the choice counts requests; bytes: preflight has seen the file.
	case ${OPT[policy]} in
	default) ;;
	requests)
		[ ! -e "/sys/block/$DISK_NAME/queue/wbt_policy" ] ||
			queue_set wbt_policy requests || return ;;
	*) queue_set wbt_policy "${OPT[policy]}" || return ;;
	esac
	[ "${OPT[max-sectors-kb]}" = default ] ||
		queue_set max_sectors_kb "${OPT[max-sectors-kb]}"
}

# preflight() - skip the whole case if this kernel lacks what its options need
preflight() {
	[ "${OPT[fs]}" != btrfs ] || fs_check btrfs
	[ "${OPT[iocost]}" = off ] || iocost_check
	[ "${OPT[policy]}" = bytes ] || return 0
	# The file belongs to a disk, so there must be one.
	disk_setup "${OPT[fs]}"
	[ -e "/sys/block/$DISK_NAME/queue/wbt_policy" ] ||
		skip_all "--policy=bytes: this kernel has no queue/wbt_policy, it throttles by requests only"
	disk_teardown
}

# read_floor_us() - time the modelled disk needs at least for a 4 KiB read
read_floor_us() {
	local cell=0 mbps burst
	[ "$DISK_KIND" = wbdisk ] || { echo 0; return; }
	[ "$(wbdisk_get test model)" != ssd ] || cell=$(wbdisk_get test t_read_ns)
	mbps=$(wbdisk_get test link_mbps)
	burst=$(wbdisk_get test burst_mbps)
	[ "$burst" -le "$mbps" ] || mbps=$burst
	calc "($(wbdisk_get test latency_ns) + $cell + 4096e3 / $mbps) / 1e3"
}

# run_fio(json, options...) - one fio job, until its time is over; only in the
# background, where exec makes the job's process fio itself
run_fio() {
	local prio=()
	group_enter readers
	[ "${OPT[reader-prio]}" = normal ] || prio=("${FIRST[@]}")
	# clock_gettime: fio would calibrate the TSC, which says nothing in a guest.
	exec "${prio[@]}" fio "${@:2}" --bs=4k --ioengine=psync --thread=1 \
		--time_based --runtime="${OPT[runtime]}" \
		--randseed="$((FIO_SEED_BASE + OPT[seed]))" --clocksource=clock_gettime \
		--percentile_list="$PERCENTILES" \
		--output-format=json+ --output="$1" > "$1.err" 2>&1
}

# run_open(json) - in the background, as run_fio
run_open() {
	local prio=()
	group_enter readers
	[ "${OPT[reader-prio]}" = normal ] || prio=("${FIRST[@]}")
	exec "${prio[@]}" "$WB_DIR/open_reader" "$MNT/read" "$((OPT[readers] * OPT[rate]))" \
		"${OPT[runtime]}" "$((OPT[seed] + 1))" > "$1" 2> "$1.err"
}

# run_readers(json)
run_readers() {
	[ "${OPT[reader]}" = fio ] || run_open "$1"
	[ "${OPT[rate]}" = 0 ] || set -- "$1" --rate_iops="${OPT[rate]}" --rate_process=poisson
	# Clock 1 is CLOCK_MONOTONIC, that of the trace.
	[ "${OPT[trace-control]}" = 0 ] || set -- "$@" --per_job_logs=0 \
		--write_lat_log="${1%/*}/control-read${SUFFIX}" \
		--log_alternate_epoch=1 --log_alternate_epoch_clock_id=1
	run_fio "$1" --name=readers --filename="$MNT/read" --size="${READ_FILE_MIB}m" \
		--rw=randread --direct=1 --numjobs="${OPT[readers]}" --group_reporting "${@:2}"
}

# run_probe(json)
run_probe() {
	if [ "${OPT[probe]}" = direct ]; then
		run_fio "$1" --name=probe --filename="$MNT/probe" --rw=write --direct=1 --sync=dsync \
			--rate_iops="$PROBE_IOPS" --size="${PROBE_LOG_MIB}m"
		return
	fi
	# The file never comes to its end, and fill_device keeps fio from making it
	# that long at once: every write appends.
	run_fio "$1" --name=probe --filename="$MNT/probe" --rw=write --fsync=1 \
		--rate_iops="$PROBE_IOPS" --size="$((2 * 4 * PROBE_IOPS * OPT[runtime]))k" \
		--fallocate=none --fill_device=1
}

# run_writer(writer, log) - write and sync; sets DRAIN_US.  Fails as dd does.
run_writer() {
	local start end rc pid flags=()
	case $1 in
	idle) return 0 ;;
	direct) flags=(oflag=direct) ;;
	fsync) flags=(conv=fsync) ;;
	esac
	now_us start
	control_mark start
	(
		group_enter writer
		exec dd if=/dev/zero of="$MNT/write" bs=1M count="${OPT[mib]}" "${flags[@]}" 2> "$2"
	) &
	pid=$!
	[ "${OPT[trace-control]}" = 0 ] || control_follow "$pid"
	wait "$pid"
	rc=$?
	control_mark written
	sync
	now_us end
	control_mark synced
	DRAIN_US=$((end - start))
	return "$rc"
}

# device_report(suffix) - what the modelled disk saw; of two, the sum, but the
# larger peak
device_report() {
	local name key value
	local -A sum=()
	[ "$DISK_KIND" = wbdisk ] || return 0
	for name in "${DISK_MODELS[@]}"; do
		while read -r key value; do
			if [ "$key" != inflight_write_peak_bytes ]; then
				sum[$key]=$((${sum[$key]:-0} + value))
			elif [ "$value" -gt "${sum[$key]:-0}" ]; then
				sum[$key]=$value
			fi
		done < "$WBDISK_CONFIGFS/$name/stats"
		for key in hist_read hist_write hist_ahead stats; do
			cat "$WBDISK_CONFIGFS/$name/$key" > "$WB_OUT/disk${name#test}-$key$1.txt"
		done
	done
	for key in writes flushes; do
		metric "disk_$key$1" "${sum[$key]}"
	done
	for key in write_bytes inflight_write_peak_bytes; do
		metric "disk_$key$1" "${sum[$key]:-0}"
	done
}

# writer_report(suffix, writer) - metrics of the writer
writer_report() {
	[ "$2" != idle ] || return 0
	metric "write_mbps$1" "$(dd_mbps "$WB_OUT/dd$1.log")"
	metric "drain_s$1" "$(calc "$DRAIN_US / 1e6")"
}

# probe_report(suffix) - metrics of the probe
probe_report() {
	if [ "${OPT[probe]}" = direct ]; then
		metric "direct_p50$1" "${P[p50]:-}"
		metric "direct_p99$1" "${P[p99]:-}"
		metric "direct_max$1" "${P[max]:-}"
		metric "direct_count$1" "${P[count]:-}"
		return
	fi
	metric "fsync_p50$1" "${P[p50]:-}"
	metric "fsync_p99$1" "${P[p99]:-}"
	metric "fsync_max$1" "${P[max]:-}"
	metric "fsync_count$1" "${P[count]:-}"
}

# latency_report(json, suffix) - metrics and histogram of the readers
latency_report() {
	local name
	for name in p50 p90 p99 p99_9 p99_95 p99_99 max; do
		metric "read_$name$2" "${V[$name]:-}"
	done
	metric "read_iops$2" "${V[iops]:-}"
	[ "${OPT[reader]}" = fio ] || due_report "$1" "$2"
	fio_bins "$1" > "$WB_OUT/read-latency$2.csv"
	log2_hist usecs < "$WB_OUT/read-latency$2.csv" > "$WB_OUT/read-latency$2.txt"
	note_file "$WB_OUT/read-latency$2.txt"
}

# due_report(json, suffix) - latencies since each read was due
due_report() {
	local name
	local -A due=()
	json_values "$1" due '.jobs[0].read | (.due_ns | pXX, "max \(.max / 1000)"), "late \(.late)"'
	for name in p50 p90 p99 p99_9 p99_95 p99_99 max; do
		metric "read_due_$name$2" "${due[$name]:-}"
	done
	metric "read_late$2" "${due[late]:-}"
}

# results_each() - KTAP results of one combination
results_each() {
	local n=2
	[ "${OPT[readers]}" = 0 ] || n=$((n + 2))
	[ "${OPT[probe]}" = none ] || n=$((n + 1))
	echo $((n + OPT[trace-control]))
}

# run_combination(writer, wbt, suffix, label) - results_each() results; the numbers
# of the readers are left in V, those of the probe in P
run_combination() {
	local writer=$1 wbt=$2 suffix=$3 label=$4
	local json=$WB_OUT/fio$suffix.json probe=$WB_OUT/fio-probe$suffix.json
	local fio_pid="" probe_pid="" fio_rc=0 probe_rc=0 dd_rc cpu0 cpu1 options="" attrs=() name
	declare -gA V=([error]=0) P=([error]=0)
	DRAIN_US=0 SUFFIX=$suffix

	[ "${OPT[saturate]}" = 0 ] || [ -n "${OPT[disk-set]}" ] ||
		attrs=("link_mbps=$SATURATE_LINK_MBPS")
	# Checksums of data keep a virtual CPU busier than the disk is.
	[ "${OPT[fs]}" != btrfs ] || options=nodatasum
	disk_setup "${OPT[fs]}" "$options" "${attrs[@]}"
	check "$label: settings took effect" queue_setup "$wbt"
	dd if=/dev/zero of="$MNT/read" bs=1M count="$READ_FILE_MIB" conv=fsync 2> "$WB_OUT/layout.log" ||
		die "cannot write the readers' file: $(tail -n 1 "$WB_OUT/layout.log")"
	[ "${OPT[probe]}" != direct ] ||
		dd if=/dev/zero of="$MNT/probe" bs=1M count="$PROBE_LOG_MIB" conv=fsync 2> "$WB_OUT/layout.log" ||
		die "cannot write the log: $(tail -n 1 "$WB_OUT/layout.log")"
	sync
	echo 3 > "$VM/drop_caches"
	for name in "${DISK_MODELS[@]}"; do
		wbdisk_set "$name" reset_stats 1
	done

	[ "${OPT[trace]}" = 0 ] || trace_start "${OPT[fs]}" "$suffix"
	[ "${OPT[trace-control]}" = 0 ] || control_start || die "cannot trace this kernel"
	cpu_snapshot cpu0
	if [ "${OPT[readers]}" != 0 ]; then
		V=()
		run_readers "$json" &
		fio_pid=$!
	fi
	if [ "${OPT[probe]}" != none ]; then
		P=()
		run_probe "$probe" &
		probe_pid=$!
	fi
	sleep "$WRITER_DELAY"
	run_writer "$writer" "$WB_OUT/dd$suffix.log"
	dd_rc=$?
	[ -z "$fio_pid" ] || { wait "$fio_pid" || fio_rc=$?; }
	[ -z "$probe_pid" ] || { wait "$probe_pid" || probe_rc=$?; }
	cpu_snapshot cpu1
	[ "${OPT[trace]}" = 0 ] || trace_stop
	[ "${OPT[trace-control]}" = 0 ] || control_stop "$WB_OUT/control$suffix.csv"

	[ ! -s "$json" ] || fio_values "$json" V
	[ ! -s "$json.err" ] || note_file "$json.err"
	[ ! -s "$probe" ] || "fio_${PROBE_VALUES[${OPT[probe]}]}_values" "$probe" P
	[ ! -s "$probe.err" ] || note_file "$probe.err"
	[ -z "$fio_pid" ] || latency_report "$json" "$suffix"
	writer_report "$suffix" "$writer"
	[ -z "$probe_pid" ] || probe_report "$suffix"
	metric "cpu_idle$suffix" "$(cpu_idle_pct "$cpu0" "$cpu1")"
	device_report "$suffix"
	note "$label: wbt_lat_usec $(queue_show wbt_lat_usec), wbt_policy $(queue_show wbt_policy)"

	check "$label: no I/O error" \
		[ "$fio_rc $probe_rc $dd_rc ${V[error]:-none} ${P[error]:-none}" = "0 0 0 0 0" ]
	[ -z "$probe_pid" ] || check "$label: ${OPT[probe]} probe ran to its end" \
		holds "${P[count]:-0} > 0 && ${P[ms]:-0} >= 900 * ${OPT[runtime]}"
	[ -z "$fio_pid" ] || readers_check "$label"
	[ "${OPT[trace-control]}" = 0 ] || check "$label: the control loop was recorded" \
		grep -q -e ,queue, -e ,wbt_ "$WB_OUT/control$suffix.csv"
	disk_teardown
}

# readers_check(label) - two results
readers_check() {
	local label=$1
	check "$label: readers ran to their end" \
		holds "${V[ios]:-0} > 0 && ${V[ms]:-0} >= 900 * ${OPT[runtime]} && ${V[max]:-1e9} < 2e6 * ${OPT[runtime]}"
	check "$label: median read takes at least what the disk needs" \
		holds "${V[p50]:-0} >= $(read_floor_us)"
}

single() {
	ktap_set_plan $(($(results_each) + 1 + OPT[trace]))
	run_combination "${OPT[writer]}" "${OPT[wbt]}" "" "${OPT[writer]}"
	[ "${OPT[trace]}" = 0 ] || trace_result
	check_dmesg
}

suite() {
	local idle direct off
	ktap_set_plan $((4 * $(results_each) + 2 + OPT[trace] + 1))
	run_combination idle "${OPT[wbt]}" _idle "idle"
	idle=${V[p99_95]:-0}
	run_combination direct "${OPT[wbt]}" _direct "direct"
	direct=${V[p99_95]:-0}
	run_combination buffered off _buffered_wbt_off "buffered, wbt off"
	off=${V[p99_95]:-0}
	run_combination buffered "${OPT[wbt]}" _buffered "buffered"
	if [ "$DISK_KIND" != wbdisk ]; then
		skip_test "p99.95 next to a direct writer is above idle" \
			"one run in real time decides nothing: wb run --dir repeats it"
	else
		check "p99.95 next to a direct writer is above idle" holds "$idle < $direct"
	fi
	if [ "$DISK_KIND" = wbdisk ] && [[ ${OPT[disk]} =~ ^(sata|fifo)$ ]]; then
		check "p99.95 next to a buffered writer without wbt is $REPLAY_FACTOR times that next to a direct one" \
			holds "$off >= $REPLAY_FACTOR * $direct"
	else
		skip_test "replay of the 2017 report" "only asserted on --disk=sata and fifo"
	fi
	[ "${OPT[trace]}" = 0 ] || trace_result
	check_dmesg
}

saturate_defaults() {
	[ -n "${OPT_GIVEN[readers]:-}" ] || OPT[readers]=$SATURATE_READERS
	[ -n "${OPT_GIVEN[rate]:-}" ] || OPT[rate]=0
	[ -n "${OPT_GIVEN[mib]:-}" ] || OPT[mib]=$SATURATE_MIB
}

if [ "${OPT[reader]}" = open ] && { [ "${OPT[rate]}" = 0 ] || [ "${OPT[trace-control]}" = 1 ]; }; then
	usage_error "--reader=open needs a --rate, and has no --trace-control"
fi
if [ "${OPT[readers]}" = 0 ]; then
	[[ ${OPT[writer]} != suite && ${OPT[writer]} != idle ]] ||
		usage_error "--readers=0 needs a --writer to measure"
fi
wb_begin
disk_check
[ "${OPT[saturate]}" = 0 ] || saturate_defaults
preflight
if [ "${OPT[writer]}" = suite ]; then
	suite
else
	single
fi
ktap_finished
