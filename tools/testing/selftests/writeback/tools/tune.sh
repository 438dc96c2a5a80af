#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# "wb tune" on a mounted disk: it measures without leaving anything behind, what it
# applies is in force and makes the load better, and --undo restores every value.
# Needs python3 and wb, which "wb run tune" puts into the guest.
#
# A kernel with wbt_policy starts with "requests", what a stock kernel has: with
# "bytes" there would be nothing to recommend for reads.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/load.sh
. "$WB_DIR/lib/load.sh"

readonly WB=/opt/wb/wb
readonly SYSCTL=/etc/sysctl.d/90-calm-writeback.conf
readonly UDEV=/etc/udev/rules.d/90-calm-writeback.rules
readonly BACKUP=/var/lib/calm-writeback/tune-backup.json
# The load after --apply, against before: 1.5 is far more than seeds differ.
readonly BETTER=1.5
# What the measurement may be off from the modelled disk: its own CPU time per request.
readonly RATE_LOW=0.6 RATE_HIGH=1.1

about title "wb tune in the guest: measure, apply, the same load again, undo"
about replays "none: the recommendation must make the load better, and undo restore every value"
about wall 90
about programs fio jq awk dd chrt python3
about kernel BLK_WBT BLK_WBT_MQ MQ_IOSCHED_DEADLINE FTRACE
about python
about not_fast "where fio, which spins while it waits, takes minutes"
axis_disk fifo
axis fs xfs 'xfs|ext4' "file system of the disk"
axis goal read-latency 'read-latency|unplug|database' "what to tune for"
axis mib 1024 '1..16384 MiB' "size of the file that the load writes"
measures tune_write_mbps MB/s - "what wb tune measured as the disk's drain"
measures 'tune_read_P, tune_fsync_P, tune_loaded_P' us - \
	"what wb tune measured: reads of the idle disk, fdatasync, reads beside a writer"
measures_load_run
case_parse "$@"

# settings_snapshot() - every setting that wb tune could touch
settings_snapshot() {
	local file bdi
	bdi=/sys/class/bdi/$(< "/sys/block/$DISK_NAME/dev")
	for file in "$VM"/dirty_{bytes,ratio,background_bytes,background_ratio,expire_centisecs,writeback_centisecs} \
	    "/sys/block/$DISK_NAME/queue/"{scheduler,max_sectors_kb,nr_requests,wbt_lat_usec,wbt_policy} \
	    "$bdi"/{max_ratio_fine,strict_limit,max_drain_ms}; do
		[ ! -e "$file" ] || echo "$file $(cat "$file" 2>&1)"
	done
}

tune() {
	"$WB" tune "$@" 2>> "$WB_OUT/wb.err"
}

# advice_holds(json) - every recommended value is what its file says now
advice_holds() {
	local file value now
	while IFS=$'\t' read -r file value; do
		now=$(value_of "$file")
		note "$file: $now"
		case $file in
		# kept as a share of the dirty limit, in parts per million
		*/max_bytes) holds "abs($now - $value) <= 0.01 * $value" || return ;;
		*) [ "$now" = "$value" ] || return ;;
		esac
	done < <(jq -r '.advice[] | select(.value != null) | [.file, .value] | @tsv' "$1")
}

nothing_left() {
	[ -z "$(find "$MNT" -mindepth 1 -maxdepth 1 ! -name lost+found)" ]
}

# is_better(metric) - after --apply
is_better() {
	holds "${LOAD[$1_after]:-1e9} * $BETTER < ${LOAD[$1_before]:-0}"
}

# measured() - random data would fill the modelled disk's memory
measured() {
	tune "$MNT" --goal "${OPT[goal]}" --max-mib 128 --max-seconds 20 --zeros \
		--save "$WB_OUT/measured.json" --json > "$WB_OUT/advice.json"
}

applies() {
	tune "$MNT" --goal "${OPT[goal]}" --max-mib 128 --max-seconds 20 --zeros --apply --json \
		> "$WB_OUT/advice.json" && jq -r '.applied[]' "$WB_OUT/advice.json" > "$WB_OUT/apply"
}

# gained() - it has measured again, in as large rounds, and has something to say
gained() {
	jq -r '.verified.verdicts[] | "\(.metric) \(.a) -> \(.b): \(.verdict)"' "$WB_OUT/advice.json" \
		> "$WB_OUT/gained" && [ -s "$WB_OUT/gained" ] &&
		jq -e '.measured.loaded_mib == .verified.measured.loaded_mib' "$WB_OUT/advice.json" > /dev/null
}

in_force() {
	advice_holds "$WB_OUT/advice.json" && [ -s "$BACKUP" ] && { [ -s "$SYSCTL" ] || [ -s "$UDEV" ]; } &&
		! cmp -s "$WB_OUT/settings-before" "$WB_OUT/settings-applied"
}

undone() {
	tune --undo > "$WB_OUT/undo" || return
	settings_snapshot > "$WB_OUT/settings-after"
	cmp "$WB_OUT/settings-before" "$WB_OUT/settings-after" &&
		[ ! -e "$SYSCTL" ] && [ ! -e "$UDEV" ] && [ ! -e "$BACKUP" ]
}

refuses_undo() {
	! tune --undo
}

load() {
	local options=(--writer=buffered --mib="${OPT[mib]}")
	case ${OPT[goal]} in
	unplug) options+=(--readers=0) ;;
	database) options+=(--probe=fsync) ;;
	esac
	load_run "$1" "${options[@]}"
}

wb_begin
[ -x "$WB" ] || skip_all "needs $WB: wb run tune"
disk_check
ktap_set_plan 12
disk_setup "${OPT[fs]}"
if [ "$DISK_KIND" = dev ]; then
	# QEMU's ide-hd says that it rotates, which a file of the host does not.
	set_value "/sys/block/$DISK_NAME/queue/rotational" 0
	set_value "/sys/block/$DISK_NAME/queue/wbt_lat_usec" -1
fi
[ ! -e "/sys/block/$DISK_NAME/queue/wbt_policy" ] ||
	set_value "/sys/block/$DISK_NAME/queue/wbt_policy" requests

check "measures" measured
rate=$(jq -r '.write_mbps' "$WB_OUT/measured.json")
metric tune_write_mbps "$rate"
metric tune_read_p50 "$(jq -r .read_p50_us "$WB_OUT/measured.json")"
metric tune_read_p99 "$(jq -r .read_p99_us "$WB_OUT/measured.json")"
metric tune_fsync_p99 "$(jq -r .fsync_p99_us "$WB_OUT/measured.json")"
metric tune_loaded_p99 "$(jq -r .loaded_p99_us "$WB_OUT/measured.json")"
if [ "$DISK_KIND" = wbdisk ] && [ "${OPT[disk]}" = fifo ]; then
	link=$(wbdisk_get test link_mbps)
	check "measures what the model drains" holds "$rate > $RATE_LOW * $link && $rate < $RATE_HIGH * $link"
else
	skip_test "measures what the model drains" "only asserted on --disk=fifo"
fi
timeout -s INT 3 "$WB" tune "$MNT" --max-mib 512 --max-seconds 60 --zeros > /dev/null 2>> "$WB_OUT/wb.err"
interrupted=$?
# 124 is timeout's: it had to end it.
note "interrupted: exit code $interrupted"
check "leaves no file, also when interrupted" eval "[ $interrupted = 124 ] && nothing_left"

check "the load runs before" load before
settings_snapshot > "$WB_OUT/settings-before"
check "applies" applies
note_file "$WB_OUT/apply"
check "measures again, and says what it gained" gained
[ ! -s "$WB_OUT/gained" ] || note_file "$WB_OUT/gained"
settings_snapshot > "$WB_OUT/settings-applied"
check "every recommended value is in force, files and backup are written" in_force
check "the load runs after" load after
if [ "$DISK_KIND" = dev ]; then
	# A host that does other things may add to either load.
	skip_test "the load is better" "real time: compared in the exact lane"
else
	case ${OPT[goal]} in
	unplug) check "sync after the copy is $BETTER x shorter" is_better sync_s ;;
	database) check "fsync p99 is $BETTER x better" is_better fsync_p99 ;;
	read-latency) check "read p99.95 is $BETTER x better" is_better read_p99_95 ;;
	esac
fi
check "undo restores every value, and removes the files" undone
check "a second undo says that there is nothing" refuses_undo
[ ! -s "$WB_OUT/wb.err" ] || note_file "$WB_OUT/wb.err"
check_dmesg
disk_teardown
ktap_finished
