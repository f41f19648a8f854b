#!/usr/bin/env bash
# isolate.sh OUT CALLER... -- OBJECT...: links a student's objects into the one object OUT. Of what
# they define, others see only the names that CALLERs leave undefined. So a helper may have any name:
# it neither takes the place of a function of the tests or of common/, nor is replaced by one.
# Variables of which a program has one, as inline ones, stay visible: a copy would be another variable.
set -euo pipefail
out=$1
shift
callers=()
while [[ $1 != -- ]]; do
  callers+=("$1")
  shift
done
shift

mkdir -p "${out%/*}"
# Without groups of sections: the linker drops a group that another object has too, and with it what
# is visible no more.
ld -r --force-group-allocation -o "$out.linked" "$@"
{
  nm --undefined-only --format=posix "${callers[@]}"
  nm --defined-only --extern-only --format=posix "$out.linked" |
    awk '$2 == "u" || ($2 == "V" && $1 !~ /^_ZT[VTIS]/)'
} | awk 'NF > 1 { print $1 }' | sort -u >"$out.visible"
# Weak: of such a variable the program takes one.
objcopy --keep-global-symbols="$out.visible" --weaken "$out.linked" "$out"
rm "$out.linked" "$out.visible"
