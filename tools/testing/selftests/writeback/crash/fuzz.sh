#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Every attribute of writeback that can be written gets random, huge, negative,
# empty, overlong and binary values while a disk works: what is refused leaves the
# old value, what is taken is in its range and reads back, the disk works on.
# The same seed gives the same values in the same order.

# shellcheck source=../lib/functions.sh
. "$(dirname "$0")/../lib/functions.sh"
# shellcheck source=../lib/cgroup.sh
. "$WB_DIR/lib/cgroup.sh"

readonly ON=on OFF=off	# the modelled disk that works, and the one without power
readonly S64_MAX=9223372036854775807 U32_MAX=4294967295 INT_MAX=2147483647
# Of what a queue or a list may hold, more would only take longer.
readonly LATENCY_US_MAX=9223372036854775

about title \
	"random, huge, negative, empty and binary values for every attribute of the series and of wbdisk, under load"
about replays \
	"none: looks for bad values that are taken, values that change when refused, and splats"
about wall 100
about programs awk dd
about once values=12
about kernel BLK_WBT BLK_WBT_MQ CGROUPS
about series
axis values 24 1..99999 "values for each attribute" wall=4
measures 'fuzz_inputs, fuzz_refused' count - "values written, and refused"
case_parse "$@"

INPUTS=0 REFUSED=0
VALUE=

# random_digits(count) - VALUE is a number of so many digits
random_digits() {
	local i
	VALUE=$((RANDOM % 9 + 1))
	for ((i = 1; i < $1; i++)); do
		VALUE+=$((RANDOM % 10))
	done
}

# random_bytes(count) - VALUE is a format of printf for so many bytes, none of them 0x0a
random_bytes() {
	local i hex
	VALUE=
	for ((i = 0; i < $1; i++)); do
		printf -v hex '\\x%02x' $((RANDOM % 245 + 11))
		VALUE+=$hex
	done
}

# random_value(low, high) - VALUE is a format of printf
random_value() {
	local low=$1 high=$2 edge
	case $((RANDOM % 12)) in
	0|1) random_digits $((RANDOM % 6 + 1)) ;;
	2) random_digits $((RANDOM % 30 + 6)) ;;
	3) VALUE=$low ;;
	4) VALUE=$high ;;
	5) VALUE=$((low - 1)) ;;
	6) VALUE=$((high + 1)) ;;	# of S64_MAX that is the least number
	7) edge=(0 -1 -0 "$INT_MAX" 2147483648 -2147483648 "$U32_MAX" 4294967296 "$S64_MAX"
		 9223372036854775808 -9223372036854775808 18446744073709551615
		 18446744073709551616 99999999999999999999999)
	   VALUE=${edge[RANDOM % ${#edge[@]}]} ;;
	8) edge=("" " " "\\t" "\\x00" "\\n1" "1\\n2" "1 2" "1,2" 1x 0x 0x10 010 1.5 1e3 +1 --1
		 "%%s%%n" "\$(reboot)" "../.." default bytes "[bytes]" "default\\x00" "none\\x00x" \
		 eio any "read 1" "write 1 1 eio" "flush -1" max true "\\xef\\xbb\\xbf1")
	   VALUE=${edge[RANDOM % ${#edge[@]}]} ;;
	9) random_bytes $((RANDOM % 16 + 1)) ;;
	10) random_bytes $((RANDOM % 64 + 64)) ;;
	# Above a page: more than one sysfs or configfs write may hold.
	11) printf -v VALUE '%*s' $((RANDOM % 5000)) ""
	    VALUE=${VALUE// /9} ;;
	esac
}

# in_range(value, low, high, words) - "" for low: no number; and no words: anything
in_range() {
	local word
	[ -n "$2$4" ] || return 0
	for word in $4; do
		[ "$1" != "$word" ] || return 0
	done
	[ -n "$2" ] && [[ $1 =~ ^-?[0-9]{1,18}$ ]] && (($1 >= $2 && $1 <= $3))
}

# put(file) - write VALUE, in one piece up to a page; 1 if the kernel refuses it
put() {
	# shellcheck disable=SC2059 # the value is a format
	if [[ $VALUE = *\\n* ]]; then
		printf -- "$VALUE\\n" | dd bs=8k iflag=fullblock of="$1" conv=notrunc status=none
	else
		printf -- "$VALUE\\n" > "$1"
	fi 2> /dev/null
}

# unchanged(before, after, part) - the same, or numbers that differ by less than 1/part
unchanged() {
	[ "$1" != "$2" ] || return 0
	[ "$3" -gt 0 ] && [[ "$1 $2" =~ ^[0-9]{1,15}\ [0-9]{1,15}$ ]] && (($3 * ($1 > $2 ? $1 - $2 : $2 - $1) < $1))
}

# fuzz(file, low, high, [words], [part]) - one result; what it reads as may change by
# less than 1/part by itself
fuzz() {
	local file=$1 low=$2 high=$3 words=${4:-} part=${5:-0} i before after bad=0 name
	name=${file#/proc/sys/} name=${name#/sys/kernel/config/} name=${name##*/wbd-"$ON"/}
	if [ ! -e "$file" ]; then
		skip_test "$name" "not in this kernel"
		return
	fi
	save_value "$file"
	for ((i = 0; i < OPT[values]; i++)); do
		random_value "${low:-0}" "${high:-$S64_MAX}"
		before=$(value_of "$file")
		INPUTS=$((INPUTS + 1))
		if put "$file"; then
			after=$(value_of "$file")
			in_range "$after" "$low" "$high" "$words" && continue
			note "$name: took '${VALUE:0:60}', reads '$after'"
			bad=1
		else
			REFUSED=$((REFUSED + 1))
			after=$(value_of "$file")
			! unchanged "$before" "$after" "$part" || continue
			# More than a page arrives in pieces: the first may be fine.
			[ "${#VALUE}" -lt 4000 ] || continue
			note "$name: refused '${VALUE:0:60}', but '$before' became '$after'"
			bad=1
		fi
	done
	restore_value "$file"
	check "$name" [ "$bad" = 0 ]
}

# load() - a writer that syncs, and a reader
load() {
	local i
	for ((i = 0; ; i++)); do
		[ ! -e "$WB_OUT/stop" ] || return 0
		dd if=/dev/zero of="/mnt/$ON/file" bs=64k count=64 conv=notrunc status=none || return
		((i % 4)) || sync "/mnt/$ON/file" || return
		dd if=/dev/wbd-$ON of=/dev/null bs=4k count=16 iflag=direct status=none || return
		sleep .05
	done
}

# bad_names() - may not become a disk
bad_names() {
	local name bad=0
	for name in . .. "a b" a.b "$(printf 'a\377')" "$(printf 'a\001')" "$(printf '%025d' 0)" "$(printf '%0255d' 0)" \
		"%s" "-" ; do
		INPUTS=$((INPUTS + 1))
		mkdir -- "$WBDISK_CONFIGFS/$name" 2> /dev/null || { REFUSED=$((REFUSED + 1)); continue; }
		[ "$name" = - ] || { note "made the disk '$name'"; bad=1; }
		rmdir -- "$WBDISK_CONFIGFS/$name"
	done
	return $bad
}

wb_begin
need_wbdisk
disk_beside ext4 $ON fifo
wbdisk_create $OFF sata-ssd
wbdisk_set $OFF power 0
readonly QUEUE=/sys/block/wbd-$ON/queue BDI=/sys/block/wbd-$ON/bdi EXT4=/sys/fs/ext4/wbd-$ON
ktap_set_plan $((20 + $(wc -l < "$WBDISK_CONFIGFS/ranges")))
note "seed ${OPT[seed]}, ${OPT[values]} values each"
RANDOM=${OPT[seed]}
load &
LOAD=$!
high=
[ ! -e $QUEUE/wbt_policy ] || high=$LATENCY_US_MAX
fuzz $QUEUE/wbt_lat_usec "${high:+0}" "$high"
fuzz $QUEUE/wbt_policy "" "" "bytes requests"
fuzz $VM/dirty_expire_centisecs 0 $U32_MAX
# The kernel takes any int here, and prints it as one.
fuzz $VM/dirty_writeback_centisecs -2147483648 $INT_MAX
fuzz $BDI/max_drain_ms 0 $INT_MAX
fuzz $BDI/min_ratio 0 100
fuzz $BDI/max_ratio 0 100
fuzz $BDI/strict_limit 0 1
# What is allowed depends on memory, and so does what a ratio reads as in bytes.
fuzz $BDI/max_bytes 0 $S64_MAX "" 64
fuzz $BDI/min_bytes 0 $S64_MAX "" 64
fuzz $EXT4/alloc_ahead_kb 0 $U32_MAX
fuzz "$WBDISK_CONFIGFS/$OFF/profile" "" "" "$(tr '\n' ' ' < "$WBDISK_CONFIGFS/profiles")"
fuzz "$WBDISK_CONFIGFS/$OFF/model" "" "" "fifo ssd hdd"
fuzz "$WBDISK_CONFIGFS/$OFF/stall_ms" 0 3600000
fuzz "$WBDISK_CONFIGFS/$OFF/fail_nth" "" ""
fuzz "$WBDISK_CONFIGFS/$OFF/fail_range" "" ""
while read -r name low high _; do
	fuzz "$WBDISK_CONFIGFS/$OFF/$name" "$low" "$high"
done < "$WBDISK_CONFIGFS/ranges"
check "bad names of disks are refused" bad_names
metric fuzz_inputs $INPUTS
metric fuzz_refused $REFUSED
touch "$WB_OUT/stop"
check "the disk worked all the time" wait $LOAD
check "and works" eval "dd if=/dev/zero of=/mnt/$ON/more bs=1M count=4 conv=fsync status=none"
check_dmesg
ktap_finished
