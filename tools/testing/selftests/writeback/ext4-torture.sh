#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Random work on ext4 (powercut_load) while the rules change (ext4_torture): mount
# options, the latency of the disk (20 us to 3 s), freeze, caches, quota, free space,
# defragmentation, FIBMAP, swapon, trim.  A round ends in one of two ways:
#	stop	all is synced, and what was written is reread: from the disk behind the
#		page cache, and once more after umount and mount
#	cut	the power is cut: what fsync acknowledged is there, nothing foreign is
# and e2fsck finds nothing.  Rounds are numbered; the seed and the number decide all.

# shellcheck source=functions.sh
. "$(dirname "$0")/functions.sh"
# shellcheck source=lib-ext4.sh
. "$WB_DIR/lib-ext4.sh"
# shellcheck source=lib-powercut.sh
. "$WB_DIR/lib-powercut.sh"

readonly DISK_MIB=128
readonly FASTEST_NS=20000
# Drawn for each round.  Where many wait for the disk in writeback, so does a remount,
# and whoever changes metadata that a commit is writing waits for that: the fewer do,
# and the more requests the disk takes, the more is changed in flight.
readonly WRITERS=(1 2 3 4 8 16) DEPTH=(32 512) COMMIT_S=(1 5 30 30)
# Options that a remount changes to.  A round has two of them, each pair in turn, as
# what goes wrong between two would be rare among all.
# shellcheck disable=SC2054 # commas of mount options
readonly OPTIONS=(
	delalloc,dioread_nolock delalloc,dioread_lock nodelalloc,dioread_lock
	nodelalloc,dioread_nolock
)
# Format and, if not both, how its rounds end: nothing is promised without a journal, and
# fast commits of the base lose synced files (seed 1, round 9, stock as patched); with
# --format fast_commit half of the rounds are power cuts all the same.
readonly FORMATS=(plain 1k quota bigalloc fast_commit:stop inline_1k nojournal:stop)

opt_add rounds 12 '[1-9][0-9]{0,3}' "how many rounds"
opt_add first 0 '[0-9]{1,4}' "number of the first round"
opt_add ms 3000 '[1-9][0-9]{2,5}' "milliseconds of a round"
opt_add format all "all|$(IFS='|'; echo "${FORMATS[*]%:*}")" "all in turn, or one of ${FORMATS[*]%:*}"
opt_parse "ext4 under changing mount options, latency and load." "$@"

# draw(number, salt, below) - pseudo-random, by the seed and both
function draw() {
	local -i x=$((OPT[seed] * 1000003 + $1 * 8191 + $2))
	x=$(((x ^ x >> 15) * 0x2c1b3c6d & 0xffffffff))
	x=$(((x ^ x >> 12) * 0x297a2d39 & 0xffffffff))
	echo $(((x ^ x >> 15) % $3))
}

# format(name) - a new file system over old data
function format() {
	local mkfs
	# Inodes in which a unit of powercut_load fits, and a second.
	case $1 in
	inline_1k) mkfs=(-O inline_data -I 1024) ;;
	*) read -ra mkfs <<< "${EXT4_FORMAT[$1]}" ;;
	esac
	[ "$1" = nojournal ] || mkfs+=(-J size=8)
	ext4_format -m 1 "${mkfs[@]}" > "$WB_OUT/mkfs" 2>&1 && return
	note_file "$WB_OUT/mkfs"
	die "no file system: $1"
}

# both(number, ms, [cut file]) - work while the rules change
function both() {
	local ret pid
	"$WB_DIR/ext4_torture" "$MNT" "$DISK_DEV" "$WBDISK_CONFIGFS/test" $((1 + $(draw "$1" 1 1000000))) \
		"$2" "${options[@]}" > "$WB_OUT/torture" 2>&1 &
	pid=$!
	pc_load "$1" $((1 + $(draw "$1" 2 1000000))) "$2" "${3:-}" "${WRITERS[$(draw "$1" 5 ${#WRITERS[@]})]}"
	ret=$?
	wait "$pid" || ret=1
	note_file "$WB_OUT/torture"
	ops=$((ops + $(pc_count "$WB_OUT/load" ops)))
	acks=$((acks + $(pc_count "$WB_OUT/load" acks)))
	remounts=$((remounts + $(sed -n 's/.*remount \([0-9]*\) of.*/\1/p' "$WB_OUT/torture")))
	return "$ret"
}

function verify() {
	pc_verify "$PC_STATE".*
	local ret=$?
	words=$((words + $(pc_count "$WB_OUT/verify" words)))
	return "$ret"
}

# behind_cache() - what is on the disk
function behind_cache() {
	echo 3 > /proc/sys/vm/drop_caches
	verify
}

# pair(number) - sets "options"
function pair() {
	local i=$1 first second
	for ((first = 0; first < ${#OPTIONS[@]}; first++)); do
		for ((second = 0; second < first; second++)); do
			options=("${OPTIONS[first]}" "${OPTIONS[second]}")
			[ $((i--)) -gt 0 ] || return 0
		done
	done
}

# run_round(number, format, stop or cut) - four results
function run_round() {
	local n=$1 what="round $1, $2, $3" mount options fails=$KTAP_CNT_FAIL
	pair $(((n / 2 + OPT[seed]) % (${#OPTIONS[@]} * (${#OPTIONS[@]} - 1) / 2)))
	mount=${options[$(draw "$1" 3 2)]}
	[ "$2" = nojournal ] || mount+=,commit=${COMMIT_S[$(draw "$n" 8 ${#COMMIT_S[@]})]}
	[ "$2" != quota ] || mount+=,usrquota
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1 latency_ns=$FASTEST_NS \
		queue_depth="${DEPTH[$(draw "$n" 6 ${#DEPTH[@]})]}"
	[ "$(draw "$n" 7 2)" -eq 1 ] || echo 0 > "/sys/block/$DISK_NAME/queue/wbt_lat_usec"
	wbdisk_set test cut_keep_ppm $((250000 * $(draw "$n" 4 4)))
	ext4_stale $DISK_MIB
	format "$2"
	ext4_mount "$mount" || die "cannot mount with $mount"
	note "$what: mounted with $mount, then with ${options[*]}"
	if [ "$3" = cut ]; then
		check "$what: no error before the cut" both "$n" "${OPT[ms]}" "$WBDISK_CONFIGFS/test/cut"
		check "$what: the journal replays" ext4_power_cut "$mount"
	else
		check "$what: no error" both "$n" "${OPT[ms]}"
		check "$what: all is on the disk" behind_cache
		ext4_remount "$mount" || die "cannot mount again"
	fi
	check "$what: all is there after a mount" verify
	umount_fs "$MNT"
	check "$what: e2fsck finds nothing" fsck_clean ext4 "$DISK_DEV"
	disk_teardown
	if [ "$KTAP_CNT_FAIL" -gt "$fails" ]; then
		note "repeat with: ${0##*/} --seed=${OPT[seed]} --format=${OPT[format]} --ms=${OPT[ms]} --first=$n --rounds=1"
	else
		rm -f "$PC_STATE".*
	fi
}

wb_begin mke2fs e2fsck
need_wbdisk
pc_need
[ -x "$WB_DIR/ext4_torture" ] || skip_all "ext4_torture is not built"
formats=("${FORMATS[@]}")
[ "${OPT[format]}" = all ] || formats=("${OPT[format]}")
ktap_set_plan $((4 * OPT[rounds] + 1))
ops=0 acks=0 words=0 remounts=0
for ((n = OPT[first]; n < OPT[first] + OPT[rounds]; n++)); do
	format=${formats[n / 2 % ${#formats[@]}]}
	end="stop"
	[[ $((n % 2)) -eq 0 || $format = *:stop || $format = nojournal ]] || end="cut"
	run_round "$n" "${format%:*}" "$end"
done
metric torture_ops "$ops" count
metric torture_acks "$acks" count
metric torture_remounts "$remounts" count
metric torture_bytes $((words * 8)) bytes
check_dmesg
ktap_finished
