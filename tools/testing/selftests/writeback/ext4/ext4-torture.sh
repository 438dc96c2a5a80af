#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Random work on ext4 (powercut_load) while the rules change (ext4_torture): mount
# options, the latency of the disk (20 us to 3 s), freeze, caches, memory, quota, size,
# free space and what is reserved of it, defragmentation, FIBMAP, swapon, trim.  A round
# ends in one of three ways:
#	stop	all is synced, and what was written is reread: from the disk behind the
#		page cache, and once more after umount and mount
#	cut	the power is cut: what fsync acknowledged is there, nothing foreign is
#	fault	the disk refuses what goes to some of its sectors, among them one of a file,
#		or flushes; later it is
#		healed and mounted again: nothing foreign is there, and what fsync
#		acknowledged is, unless the journal was aborted.  Then it may be lost, as jbd2
#		of the base lets go of metadata whose write has failed, and an fsync after
#		the abort may return 0 (stock as patched)
# and e2fsck finds nothing.  Rounds are numbered; the seed and the number decide all.
# In the end, what was to happen has: each operation worked, and faults were met.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/ext4.sh
. "$WB_DIR/lib/ext4.sh"
# shellcheck source=../lib/work.sh
. "$WB_DIR/lib/work.sh"

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
# Format and, if only so, how its rounds end: nothing is promised without a journal.
readonly FORMATS=(plain 1k quota bigalloc encrypt fast_commit inline_1k nojournal:stop)
# What begins to fail at the end of a round, and how many sectors of that there are.
readonly FAULTS=("write 16384" "write 65536" "any 16384" "flush 1")
# The file system grows to the disk's size in every second round; with blocks of 4 KiB,
# groups are smaller than usual then, so that there are several.  Not with fast commits:
# jbd2_journal_flush() of the base has updates locked and waits for the commit, which
# waits for a fast commit, which waits to lock updates.  Nor where the journal may be aborted
# in the midst of it: the base writes the superblock then, with groups whose descriptors are
# not there.
readonly SMALL_MIB=80 SMALL_GROUP=8192

# What ext4_torture and powercut_load do and that has to work in a run, if enough of its
# rounds allow it, see may(); in fewer, chance decides.  Turning quotas off and on comes
# first in each round.
readonly OPS=(
	remount stall flush quota swap grow freeze trim reclaim reserve fibmap move drop read fill
	write direct log store truncate punch zero allocate insert collapse unlink range
	fsync fdatasync syncfs reread
)
readonly ENOUGH=4 ENOUGH_QUOTA=2
# Of the rounds with faults; in the others, nothing went there any more.
readonly MET_PERCENT=50

about title \
	"random work on ext4 while mount options, latency, free space and more change; power cuts, write errors"
about replays \
	"none: looks for lost, stale or misplaced data; fails on the stock kernel, whose bugs it finds"
about wall 60
about programs awk debugfs mke2fs e2fsck
about kernel QUOTA QFMT_V2
about series
axis rounds 16 1..9999 "how many rounds"
axis first 0 0..9999 "number of the first round"
axis ms 2500 '100..999999 ms' "length of a round"
axis faults no 'no|yes|all' "may rounds end with a disk that refuses accesses, or do all that can"
axis format all "all|$(IFS='|'; echo "${FORMATS[*]%:*}")" "format, all in turn or one"
measures 'torture_ops, torture_acks, torture_remounts' count - \
	"operations, fsyncs that returned 0, and remounts beside them"
measures 'torture_cuts, torture_faults' count - "power cuts, and accesses that the disk refused"
measures torture_bytes bytes - "data compared afterwards"
case_parse "$@"

# may(operation, format, end, size) - can it work in such a round?  ext4 moves extents of
# neither bigalloc nor encrypted files, and does not swap to the latter, nor on a disk that
# will fail: swapoff() cannot open a file for writing once that has made the file system
# read-only, and it stays mounted.  Nor does it insert and
# collapse blocks of them; powercut_load does that only where there is no cut.  Quotas are
# there in one format only, and the file system grows if it was made smaller than the disk.
may() {
	case $1 in
	quota) [ "$2" = quota ] ;;
	move) [[ $2 != bigalloc && $2 != encrypt ]] ;;
	swap) [[ $2 != encrypt && $3 != fault ]] ;;
	grow) [ -n "$4" ] ;;
	insert | collapse) [[ $3 = stop && $2 != encrypt ]] ;;
	esac
}

# count(format, end, size) - what worked in a round, and what could have
count() {
	local op n
	while read -r op n; do
		worked[$op]=$((${worked[$op]:-0} + n))
	done < <(sed -n '/^remount /s/ of [^,]*//gp; s/^worked: //p' "$WB_OUT/torture" "$WB_OUT/load" |
		sed 's/, /\n/g')
	for op in "${OPS[@]}"; do
		! may "$op" "$@" || allowed[$op]=$((${allowed[$op]:-0} + 1))
	done
}

# all_worked() - did all that had to?
all_worked() {
	local op line="" never="" enough
	for op in "${OPS[@]}"; do
		line+=", $op ${worked[$op]:-0}"
		enough=$ENOUGH
		[ "$op" != quota ] || enough=$ENOUGH_QUOTA
		[[ ${worked[$op]:-0} -gt 0 || ${allowed[$op]:-0} -lt $enough ]] || never+=" $op"
	done
	note "worked: ${line#, }"
	[ -n "$never" ] || return 0
	note "never worked, though enough rounds allow it:$never"
	return 1
}

# format(name, number, end of the round) - a new file system over old data
format() {
	local mkfs
	EXT4_SIZE=
	[[ $(draw "$2" 9 2) -eq 0 || $1 = fast_commit || $3 = fault ]] || EXT4_SIZE=${SMALL_MIB}M
	# Inodes in which a unit of powercut_load fits, and a second.
	case $1 in
	inline_1k) mkfs=(-O inline_data -I 1024) ;;
	*) read -ra mkfs <<< "${EXT4_FORMAT[$1]}" ;;
	esac
	[ "$1" = nojournal ] || mkfs+=(-J size=8)
	[[ -z $EXT4_SIZE || "${mkfs[*]}" =~ "-b "|bigalloc ]] || mkfs+=(-g "$SMALL_GROUP")
	ext4_format -m 1 "${mkfs[@]}" > "$WB_OUT/mkfs" 2>&1 && return
	note_file "$WB_OUT/mkfs"
	die "no file system: $1"
}

# top(format) - of encrypted files, MNT becomes their directory: that of all cannot be
# encrypted.  Which is done once it has a key.
top() {
	local id
	[ "$1" = encrypt ] || return 0
	id=$(head -c 64 /dev/zero | tr '\0' K | xfs_io -c add_enckey "$MNT" | sed -n 's/.*identifier //p')
	[ -n "$id" ] || return
	if ! [ -d "$MNT/top" ]; then
		mkdir "$MNT/top"
		xfs_io -c "set_encpolicy $id" "$MNT/top" > "$WB_OUT/policy" 2>&1
		if [ -s "$WB_OUT/policy" ]; then
			note_file "$WB_OUT/policy"
			return 1
		fi
	fi
	mount --bind "$MNT/top" "$MNT"
}

# down(format) - undo that
down() {
	[ "$1" != encrypt ] || umount "$MNT"
}

# again(format, options) - unmount, mount
again() {
	down "$1" && ext4_remount "$2" && top "$1"
}

# lights_out(format, options)
lights_out() {
	down "$1" && ext4_power_cut "$2" && top "$1"
}

# heal(format, options) - the disk works again
heal() {
	local n
	n=$(wbdisk_stat test errors_injected)
	note "$n accesses were refused"
	faults=$((faults + n))
	[ "$n" -eq 0 ] || met=$((met + 1))
	down "$1" && umount_fs "$MNT" && wbdisk_set test fail_range "" && ext4_mount "$2" && top "$1"
}

# said(lines, text) - has the kernel's log, which had so many lines, that since?
said() {
	dmesg_new | tail -n +$(($1 + 1)) | grep -q "$2"
}

# whole_trees() - let files end behind their last block.  e2fsck moves the end of a file
# that was being truncated there if its tree is one block; if it has more, the end counts
# as what the root allows them, and what is behind it as damage.
whole_trees() {
	local size
	size=$(debugfs -R "stats -h" "$DISK_DEV" 2> /dev/null | awk '/^Block size/ { print $3 }')
	e2fsck -fn "$DISK_DEV" 2> /dev/null | awk -v size="$size" -F '[ ,()\t]+' '
		/^Inode .*, end of extent exceeds allowed value/ { inode = $2 }
		inode && $2 == "logical" && $4 + $9 > end[inode] { end[inode] = $4 + $9 }
		END { for (inode in end) print "sif <" inode "> size", end[inode] * size }' > "$WB_OUT/ends"
	[ -s "$WB_OUT/ends" ] || return 0
	note_file "$WB_OUT/ends"
	debugfs -w -f "$WB_OUT/ends" "$DISK_DEV" > /dev/null 2>&1
}

# consistent(lines) - does e2fsck find nothing?  Where the journal was aborted before it
# had noted the error, the mount drops the list of files that were being truncated, and
# leaves those to e2fsck: then, nothing else that it would not repair by itself.
consistent() {
	if ! said "$1" "clearing orphan list"; then
		fsck_clean ext4 "$DISK_DEV"
		return
	fi
	note "the list of orphans was dropped"
	whole_trees
	e2fsck -fp "$DISK_DEV" > "$WB_OUT/fsck" 2>&1
	[ $? -le 1 ] && return
	forget_orphans
	e2fsck -fp "$DISK_DEV" > "$WB_OUT/fsck" 2>&1
	[ $? -le 1 ] && return
	note_file "$WB_OUT/fsck"
	return 1
}

# forget_orphans() - files of that list that still have names have the next one's number
# in i_dtime, which e2fsck asks about
forget_orphans() {
	local inode
	e2fsck -fn "$DISK_DEV" 2> /dev/null |
		sed -n 's/.*Inode \([0-9]*\) was part of the orphaned inode list.*/\1/p' > "$WB_OUT/orphans"
	while read -r inode; do
		note "inode $inode was on it"
		debugfs -w -R "sif <$inode> dtime 0" "$DISK_DEV" > /dev/null 2>&1
	done < "$WB_OUT/orphans"
}

# both(number, ms, [what wbdisk attribute at the end, [value]]) - work while the rules change
both() {
	local ret pid
	"$WB_DIR/ext4_torture" "$MNT" "$DISK_DEV" "$WBDISK_CONFIGFS/test" $((1 + $(draw "$1" 1 1000000))) \
		$(($2 * (${4:+1} + 1))) "${4:+swap}" "${options[@]}" > "$WB_OUT/torture" 2>&1 &
	pid=$!
	pc_load "$1" $((1 + $(draw "$1" 2 1000000))) "$2" "${3:+$WBDISK_CONFIGFS/test/$3}" \
		"${WRITERS[$(draw "$1" 5 ${#WRITERS[@]})]}" "${4:-}"
	ret=$?
	wait "$pid" || ret=1
	note_file "$WB_OUT/torture"
	[ -z "${4:-}" ] || note "$(sed -n '/^fault: /p' "$WB_OUT/load")"
	ops=$((ops + $(pc_count "$WB_OUT/load" ops)))
	acks=$((acks + $(pc_count "$WB_OUT/load" acks)))
	remounts=$((remounts + $(sed -n 's/.*remount \([0-9]*\) of.*/\1/p' "$WB_OUT/torture")))
	return "$ret"
}

# verify([state...]) - without a state, only whether all data is in its place
verify() {
	pc_verify "$@"
	local ret=$?
	words=$((words + $(pc_count "$WB_OUT/verify" words)))
	return "$ret"
}

# behind_cache() - what is on the disk
behind_cache() {
	echo 3 > /proc/sys/vm/drop_caches
	verify "$PC_STATE".*
}

# pair(number) - sets "options"
pair() {
	local i=$1 first second
	for ((first = 0; first < ${#OPTIONS[@]}; first++)); do
		for ((second = 0; second < first; second++)); do
			options=("${OPTIONS[first]}" "${OPTIONS[second]}")
			[ $((i--)) -gt 0 ] || return 0
		done
	done
}

# fault(number) - value of fail_range, see powercut_load
fault() {
	local what sectors
	read -r what sectors <<< "${FAULTS[$(draw "$1" 10 ${#FAULTS[@]})]}"
	if [ "$what" = flush ]; then
		echo "flush 0 $sectors"
	else
		echo "$what @$(draw "$1" 11 "$sectors") $sectors"
	fi
}

# run_round(number, format, stop, cut or fault) - four results
run_round() {
	local n=$1 what="round $1, $2, $3" mount options lines fails=$KTAP_CNT_FAIL EXT4_SIZE=
	local turn=$((n / 2)) nr=${#formats[@]}
	lines=$(dmesg_new | wc -l)
	# Each format has another pair in its next turn.
	pair $(((turn % nr + turn / nr + OPT[seed]) % (${#OPTIONS[@]} * (${#OPTIONS[@]} - 1) / 2)))
	mount=${options[$(draw "$1" 3 2)]}
	[ "$2" = nojournal ] || mount+=,commit=${COMMIT_S[$(draw "$n" 8 ${#COMMIT_S[@]})]}
	[ "$2" != quota ] || mount+=,usrquota
	# Or a commit goes on without its data, and says so in the log only.
	if [ "$3" = fault ]; then
		mount+=,data_err=abort
		options=("${options[@]/%/,data_err=abort}")
	fi
	disk_raw fifo capacity_mib=$DISK_MIB write_cache=1 lazy_cache=1 latency_ns=$FASTEST_NS \
		queue_depth="${DEPTH[$(draw "$n" 6 ${#DEPTH[@]})]}"
	[ "$(draw "$n" 7 2)" -eq 1 ] || echo 0 > "/sys/block/$DISK_NAME/queue/wbt_lat_usec"
	wbdisk_set test cut_keep_ppm $((250000 * $(draw "$n" 4 4)))
	ext4_stale $DISK_MIB
	format "$2" "$n" "$3"
	if ! { ext4_mount "$mount" && top "$2"; }; then
		die "cannot mount with $mount"
	fi
	note "$what: mounted with $mount, then with ${options[*]}"
	case $3 in
	cut)
		check "$what: no error before the cut" both "$n" "${OPT[ms]}" cut
		check "$what: the journal replays" lights_out "$2" "$mount"
		cuts=$((cuts + 1)) ;;
	fault)
		faulty=$((faulty + 1))
		check "$what: no error before the disk's" both "$n" "${OPT[ms]}" fail_range "$(fault "$n")"
		check "$what: the journal replays" heal "$2" "$mount" ;;
	stop)
		check "$what: no error" both "$n" "${OPT[ms]}"
		check "$what: all is on the disk" behind_cache
		again "$2" "$mount" || die "cannot mount again" ;;
	esac
	if [ "$3" = fault ] && said "$lines" "Aborting journal on device"; then
		note "the journal was aborted"
		check "$what: all is in its place after a mount" verify
	else
		check "$what: all is there after a mount" verify "$PC_STATE".*
	fi
	count "$2" "$3" "$EXT4_SIZE"
	down "$2"
	umount_fs "$MNT"
	check "$what: e2fsck finds nothing" consistent "$lines"
	disk_teardown
	if [ "$KTAP_CNT_FAIL" -gt "$fails" ]; then
		note "repeat with: ${0##*/} --seed=${OPT[seed]} --format=${OPT[format]} --faults=${OPT[faults]} --ms=${OPT[ms]} --first=$n --rounds=1"
	else
		rm -f "$PC_STATE".*
	fi
}

wb_begin
need_wbdisk
pc_need
[ -x "$WB_DIR/ext4_torture" ] || skip_all "ext4_torture is not built"
formats=("${FORMATS[@]}")
[ "${OPT[format]}" = all ] || formats=("${OPT[format]}")
plan=$((4 * OPT[rounds] + 2))
[ "${OPT[faults]}" = no ] || plan=$((plan + 1))
ktap_set_plan "$plan"
ops=0 acks=0 words=0 remounts=0 faults=0 cuts=0 faulty=0 met=0
declare -A worked=() allowed=()
for ((n = OPT[first]; n < OPT[first] + OPT[rounds]; n++)); do
	format=${formats[n / 2 % ${#formats[@]}]}
	end="stop"
	if [[ $((n % 2)) -eq 1 && $format != *:stop && $format != nojournal ]]; then
		end="cut"
		# Not by default: what these find on both kernels has not been told apart yet.
		[[ ${OPT[faults]} = no || $(draw "$n" 12 3) -ne 0 ]] ||
			end="fault"
	fi
	[[ ${OPT[faults]} != all || $format = *:stop || $format = nojournal ]] || end="fault"
	run_round "$n" "${format%:*}" "$end"
done
check "each operation worked" all_worked
if [ "${OPT[faults]}" = no ]; then
	:
elif [ "$faulty" -ge "$ENOUGH" ]; then
	note "$met of $faulty rounds with faults met one"
	check "faults were met" [ $((met * 100)) -ge $((faulty * MET_PERCENT)) ]
else
	ktap_test_skip "faults were met: $faulty rounds with faults"
fi
metric torture_ops "$ops"
metric torture_acks "$acks"
metric torture_remounts "$remounts"
metric torture_cuts "$cuts"
metric torture_faults "$faults"
metric torture_bytes $((words * 8))
check_dmesg
ktap_finished
