#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What a case says about itself, once, at its beginning: what it is, its options,
# what it measures.  Option parsing, --help, the units of what it prints and
# --describe=json, which tools read, all follow from it.  Sourced by functions.sh.

declare -A ABOUT=([wall]=40 [memory]=2048 [cpus]=1)
declare -a CASE_PROGRAMS CASE_OWN_PROGRAMS CASE_KERNEL

# about(key, value...) - one fact about the case
#	title		what it tests, in a line
#	replays		the incident it comes from, or "none: " and what it is for
#	wall		s that a run takes on one core (default 40)
#	memory		MiB of a guest that runs it (default 2048)
#	cpus		of that guest (default 1)
#	programs	that it skips without
#	own_programs	the same, of programs that no other case needs
#	kernel		options that it needs, without CONFIG_
#	series [LINE]	it tests what is not in every kernel, and fails or skips without it: in the
#			series, or only in what that is for one line of kernels, such as 6.12
#	python		it needs python3 and wb
#	once		options (NAME=VALUE ...) where every case runs once: less than the defaults
#	not_fast	why it says nothing where computing takes no time
about() {
	local key=$1
	shift
	case $key in
	title|replays|wall|memory|cpus|not_fast|once) ABOUT[$key]=$* ;;
	series) ABOUT[series]=${1:-all} ;;
	python) ABOUT[python]=1 ;;
	programs) CASE_PROGRAMS+=("$@") ;;
	own_programs) CASE_OWN_PROGRAMS+=("$@") ;;
	kernel) CASE_KERNEL+=("$@") ;;
	*) usage_error "about $key: no such fact" ;;
	esac
}

# ---- options ---------------------------------------------------------------

declare -A OPT OPT_GIVEN
declare -A AXIS_VALUES AXIS_HELP AXIS_DEFAULT AXIS_FLAGS
AXES=()

declare -A KIND_RE KIND_HELP

# kind(name, regex, help) - a kind of values: extended regular expression for all of
# one, and how it is shown
kind() {
	KIND_RE[$1]=$2
	KIND_HELP[$1]=$3
}

kind pairs '([a-z_]+=[a-z0-9_]+(,[a-z_]+=[a-z0-9_]+)*)?' ATTR=VALUE,...
kind path '(/.*)?' /DIR

# axis(name, default, values, help, [flags...]) - declare the option --name=VALUE
#	values - alternatives between "|": a word, a range of numbers such as
#		"1..600 s", @KIND, or the single word "flag": --name without a value,
#		OPT[name] is then 0 or 1
#	flags - main: always part of a result's name; local: not for tools that run
#		cases; wall=S: s that one more takes; alone=VALUE: the default of a run
#		by hand, where that is another one
axis() {
	local name=$1 flag
	AXES+=("$name")
	AXIS_DEFAULT[$name]=$2
	OPT[$name]=$2
	AXIS_VALUES[$name]=$3
	AXIS_HELP[$name]=$4
	shift 4
	AXIS_FLAGS[$name]=" $* "
	for flag in "$@"; do
		case $flag in
		main|local|wall=*) ;;
		alone=*) OPT[$name]=${flag#*=} ;;
		*) usage_error "axis $name: no flag '$flag'" ;;
		esac
	done
}

# axis_flag(name, flag) - print what follows "flag=", nothing if it is not set
axis_flag() {
	[[ ${AXIS_FLAGS[$1]} =~ \ $2=([^ ]*)\  ]] && echo "${BASH_REMATCH[1]}"
}

# is_range(alternative) - a range of numbers?  LOW, HIGH and UNIT are then set
is_range() {
	[[ $1 =~ ^([0-9]+)\.\.([0-9]+)( (.+))?$ ]] || return
	LOW=${BASH_REMATCH[1]} HIGH=${BASH_REMATCH[2]} UNIT=${BASH_REMATCH[4]}
}

# opt_set(name, value) - 1 if it is not an allowed value
opt_set() {
	local one alternatives LOW HIGH UNIT
	IFS='|' read -ra alternatives <<< "${AXIS_VALUES[$1]}"
	[ "${AXIS_VALUES[$1]}" != flag ] || alternatives=(0 1)
	for one in "${alternatives[@]}"; do
		case $one in
		@*)
			[[ $2 =~ ^(${KIND_RE[${one#@}]})$ ]] || continue
			OPT[$1]=$2 ;;
		*)
			if is_range "$one"; then
				[[ $2 =~ ^[0-9]{1,12}$ ]] || continue
				((10#$2 >= LOW && 10#$2 <= HIGH)) || continue
				OPT[$1]=$((10#$2))
			else
				[ "$2" = "$one" ] || continue
				OPT[$1]=$2
			fi ;;
		esac
		# shellcheck disable=SC2034 # for the cases
		OPT_GIVEN[$1]=1
		return
	done
	return 1
}

# axis_allowed(name) - the allowed values in words
axis_allowed() {
	local one alternatives list=()
	IFS='|' read -ra alternatives <<< "${AXIS_VALUES[$1]}"
	for one in "${alternatives[@]}"; do
		[[ $one != @* ]] || one=${KIND_HELP[${one#@}]}
		list+=("$one")
	done
	(IFS='|'; echo "${list[*]}")
}

usage_error() {
	echo "${0##*/}: $1 (try --help)" >&2
	exit "$EXIT_USAGE"
}

case_usage() {
	local name shown
	printf 'Usage: %s [--option=value ...]\n\n%s\n\n' "${0##*/}" "${ABOUT[title]}"
	for name in "${AXES[@]}"; do
		shown=$name=${OPT[$name]}
		if [ "${AXIS_VALUES[$name]}" = flag ]; then
			printf '  --%-24s %s\n' "$name" "${AXIS_HELP[$name]}"
		else
			printf '  --%-24s %s: %s\n' "$shown" "${AXIS_HELP[$name]}" "$(axis_allowed "$name")"
		fi
	done
	printf '  --%-24s %s\n' describe=json "print what is declared here, for tools"
	printf '\nExit code: 0 pass, 1 fail, %d bad option, %d skipped.\n' \
		"$EXIT_USAGE" "$EXIT_SKIP"
}

# case_parse(args...) - after all declarations: fill OPT, and OPT_GIVEN for what the
# caller named; may exit: 0 after --help and --describe=json, 2 for a bad option
case_parse() {
	local arg name value
	axis seed 1 '0..999999999' "seed of every pseudo-random choice" local
	for arg in "$@"; do
		case $arg in
		--help) case_usage; exit 0 ;;
		--describe=json) case_describe; exit 0 ;;
		--*=*) name=${arg%%=*} value=${arg#*=} ;;
		--*) name=$arg value=1 ;;
		*) usage_error "unexpected argument '$arg'" ;;
		esac
		name=${name#--}
		[[ -n "$name" && -n "${AXIS_VALUES[$name]+set}" ]] ||
			usage_error "unknown option '--$name'"
		if [ "${AXIS_VALUES[$name]}" != flag ] && [ "$arg" = "--$name" ]; then
			usage_error "--$name needs a value"
		fi
		opt_set "$name" "$value" ||
			usage_error "bad value '$value' for --$name: $(axis_allowed "$name")"
	done
}

# ---- metrics ---------------------------------------------------------------

METRIC_NAMES=() METRIC_RE=() METRIC_UNIT=() METRIC_BETTER=() METRIC_MEANING=()

# measures(names, unit, better, meaning) - declare what metric() prints
#	names - between ", ".  In a name P is a percentile such as p99_9, another word
#		in capitals anything, and [...] may be missing
#	better - lower or higher; "-" if neither is
measures() {
	local re=$1 word
	METRIC_NAMES+=("$1") METRIC_UNIT+=("$2") METRIC_BETTER+=("${3#-}") METRIC_MEANING+=("$4")
	re=${re//, /|}
	re=${re//\[/(}
	re=${re//\]/)?}
	while [[ $re =~ (^|[^A-Z])([A-Z]+)($|[^A-Z]) ]]; do
		word=${BASH_REMATCH[2]}
		if [ "$word" = P ]; then
			re=${re/P/p[0-9_]+}
		else
			re=${re/$word/[^ ]+}
		fi
	done
	METRIC_RE+=("$re")
}

# metric(name, value) - a measured value, in the form the harness collects: the name
# in lower case
metric() {
	local name=${1,,} i
	for i in "${!METRIC_RE[@]}"; do
		[[ $name =~ ^(${METRIC_RE[i]})$ ]] || continue
		if [[ $2 =~ ^-?[0-9.]+(e[-+]?[0-9]+)?$ ]]; then
			printf '# %s: %s %s\n' "$name" "$2" "${METRIC_UNIT[i]}"
		else
			note "no value for $1 (got '$2')"
		fi
		return
	done
	die "measures $name, but does not declare it"
}

# ---- for tools -------------------------------------------------------------

# json_strings(text...) - JSON is a list of strings
json_strings() {
	local text IFS=, list=()
	for text in "$@"; do
		text=${text//\\/\\\\}
		list+=("\"${text//\"/\\\"}\"")
	done
	JSON="[${list[*]}]"
}

# json_members(name, value...) - the same of an object's members; empty values are left
# out, and "1" is true
json_members() {
	local IFS=, list=()
	while [ $# -gt 1 ]; do
		case $2 in
		"") ;;
		1) list+=("\"$1\":true") ;;
		*) json_strings "$2"
		   JSON=${JSON#[}
		   list+=("\"$1\":${JSON%]}") ;;
		esac
		shift 2
	done
	JSON=${list[*]}
}

describe_axis() {
	local one alternatives list=() type="" LOW="" HIGH="" UNIT="" members
	IFS='|' read -ra alternatives <<< "${AXIS_VALUES[$1]}"
	[ "${AXIS_VALUES[$1]}" != flag ] || alternatives=(0 1)
	for one in "${alternatives[@]}"; do
		case $one in
		@*) type=${one#@} ;;
		*) is_range "$one" || list+=("$one") ;;
		esac
	done
	json_members name "$1" help "${AXIS_HELP[$1]}" unit "$UNIT" pattern "${type:+${KIND_RE[$type]}}" \
		pattern_help "${type:+${KIND_HELP[$type]}}" alone "$(axis_flag "$1" alone)"
	members=$JSON
	json_strings "${AXIS_DEFAULT[$1]}"
	members+=",\"default\":${JSON:1:-1}"
	[[ ${AXIS_FLAGS[$1]} != *" main "* ]] || members+=',"main":true'
	[[ ${AXIS_FLAGS[$1]} != *" local "* ]] || members+=',"local":true'
	[ -z "$LOW" ] || members+=",\"low\":$LOW,\"high\":$HIGH"
	json_strings "${list[@]}"
	JSON="{$members,\"choices\":$JSON,\"wall_s\":$(axis_flag "$1" wall || echo 0)}"
}

# case_describe() - what is declared, as one line of JSON
case_describe() {
	local i name text sep=
	name=${0##*/}
	json_members name "${name%.sh}" title "${ABOUT[title]}" replays "${ABOUT[replays]}" \
		not_fast "${ABOUT[not_fast]}" once "${ABOUT[once]}" series "${ABOUT[series]}" python "${ABOUT[python]}"
	text="{$JSON,\"wall_s\":${ABOUT[wall]},\"memory_mib\":${ABOUT[memory]},\"cpus\":${ABOUT[cpus]}"
	json_strings "${CASE_PROGRAMS[@]}"
	text+=",\"programs\":$JSON"
	json_strings "${CASE_OWN_PROGRAMS[@]}"
	text+=",\"own_programs\":$JSON"
	json_strings "${CASE_KERNEL[@]/#/CONFIG_}"
	text+=",\"kernel\":$JSON,\"axes\":["
	for name in "${AXES[@]}"; do
		describe_axis "$name"
		text+=$sep$JSON sep=,
	done
	text+='],"metrics":[' sep=
	for i in "${!METRIC_NAMES[@]}"; do
		json_members names "${METRIC_NAMES[i]}" unit "${METRIC_UNIT[i]}" better "${METRIC_BETTER[i]}" \
			meaning "${METRIC_MEANING[i]}"
		text+="$sep{$JSON}" sep=,
	done
	printf '%s]}\n' "$text"
}
