#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# For cases that compare settings: writing lists of them, and one load of readers
# and a writer on a mounted disk, whose metrics get a suffix.  Sourced after
# functions.sh.

# shellcheck source=../lib/fio.sh
. "$WB_DIR/lib/fio.sh"

readonly SETTING_RE='((vm\.dirty_(background_)?(ratio|bytes)|queue\.(scheduler|max_sectors_kb|wbt_lat_usec|wbt_policy)|bdi\.(max_bytes|max_ratio_fine|strict_limit|max_drain_ms))=[a-z0-9-]+)'
kind settings "($SETTING_RE(,$SETTING_RE)*)?" KEY=VALUE,...

# measures_load_run() - declare what load_run() measures
measures_load_run() {
	measures_load
	measures sync_s_X s lower "from the end of dd to the end of sync, what one waits before unplugging"
}

# setting_file(key) - the file of vm.X, queue.X or bdi.X, the latter two of the disk
setting_file() {
	case $1 in
	vm.*) echo "$VM/${1#vm.}" ;;
	queue.*) echo "/sys/block/$DISK_NAME/queue/${1#queue.}" ;;
	bdi.*) echo "/sys/class/bdi/$(< "/sys/block/$DISK_NAME/dev")/${1#bdi.}" ;;
	esac
}

# settings_apply(list) - write KEY=VALUE,... in this order; 1 at the first one that
# the kernel refuses.  vm.* are put back at exit, the others go with the disk.
settings_apply() {
	local pair pairs key value
	IFS=, read -ra pairs <<< "$1"
	for pair in "${pairs[@]}"; do
		key=${pair%%=*} value=${pair#*=}
		case $key in
		vm.dirty_*) set_dirty "${key#vm.dirty_}" "$value" ;;
		*) { echo "$value" > "$(setting_file "$key")"; } 2> /dev/null ;;
		esac && continue
		note "the kernel refuses $pair"
		return 1
	done
}

declare -A LOAD	# what load_run() measured, by name_suffix

# load_run(suffix, options...) - read-latency.sh with these options on MNT; repeats
# its metrics with _SUFFIX appended, adds sync_s, and fails as it does
#	sync_s - from the end of dd to the end of sync: the wait before unplugging
load_run() {
	local suffix=$1 out=$WB_OUT/$1 rc name value
	shift
	mkdir -p "$out" || return
	WB_OUT=$out "$WB_DIR/block/read-latency.sh" --dir="$MNT" --seed="${OPT[seed]}" "$@" \
		> "$out/ktap" < /dev/null
	rc=$?
	while read -r _ name value _; do
		name=${name%:}_$suffix
		LOAD[$name]=$value
		metric "$name" "$value"
	done < <(grep -E '^# [a-z][a-z0-9_]*: -?[0-9.e+-]+ [^ ]+$' "$out/ktap")
	if [[ -n "${LOAD[drain_s_$suffix]:-}" && -n "${LOAD[write_mbps_$suffix]:-}" ]]; then
		LOAD[sync_s_$suffix]=$(calc "${LOAD[drain_s_$suffix]} - ${OPT[mib]} * 1.048576 / ${LOAD[write_mbps_$suffix]}")
		metric "sync_s_$suffix" "${LOAD[sync_s_$suffix]}"
	fi
	[ "$rc" -eq 0 ] || grep -E '^not ok|SKIP' "$out/ktap" | sed 's/^/# /'
	return "$rc"
}
