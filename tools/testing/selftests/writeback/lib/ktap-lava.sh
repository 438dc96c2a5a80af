#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Tell LAVA what a run of run_kselftest.sh found: a lava-test-case for each result,
# nested ones as CASE.RESULT, and one with a measurement for each metric.
#	ktap-lava.sh KTAP

# events(ktap) - one line each: NAME RESULT [VALUE UNIT]
events() {
	awk '
		# What LAVA allows in a name.
		function plain(text) {
			gsub(/[^A-Za-z0-9_.-]+/, "-", text)
			gsub(/^-+|-+$/, "", text)
			return text
		}
		{ sub(/\r$/, "") }
		/^# selftests: / { current = $NF; sub(/\.sh$/, "", current) }
		/^# # [a-z0-9_]+: -?[0-9.]+(e[-+]?[0-9]+)? [^ ]+$/ {
			sub(/:$/, "", $3)
			print plain(current "." $3), "pass", $4, $5
		}
		/^(# +)?(not )?ok [0-9]+ / {
			nested = /^#/
			line = $0
			sub(/^# +/, "", line)
			result = line ~ /^not / ? "fail" : "pass"
			if (line ~ / # SKIP/) result = "skip"
			if (line ~ / # (TIMEOUT|XFAIL)/ && result == "fail")
				result = line ~ /XFAIL/ ? "pass" : "fail"
			sub(/^(not )?ok [0-9]+ (- )?/, "", line)
			sub(/ # .*/, "", line)
			if (!nested) {
				sub(/.*: /, "", line)
				sub(/\.sh$/, "", line)
			}
			print plain(nested ? current "." line : line), result
		}' "$1"
}

[ -r "${1:-}" ] || { echo "usage: $0 KTAP, a log of run_kselftest.sh" >&2; exit 2; }
found=0
while read -r name result value unit; do
	found=1
	if [ -n "$value" ]; then
		lava-test-case "$name" --result "$result" --measurement "$value" --units "$unit"
	else
		lava-test-case "$name" --result "$result"
	fi < /dev/null
done < <(events "$1")
# A log without a single result is a run that never began.
[ "$found" = 1 ] || lava-test-case kselftest-ran --result fail
