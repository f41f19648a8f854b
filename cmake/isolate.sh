#!/usr/bin/env bash
# isolate.sh OUT CALLER... -- OBJECT... -- LIBRARY...: links a student's objects into the one object
# OUT. Of what they define, others see only the names that CALLERs leave undefined. So a helper may
# have any name: it neither takes the place of a function of the tests or of common/, nor is replaced
# by one. Variables of which a program has one, as inline ones, stay visible if a LIBRARY of common/
# has them too, or if they are not in namespace fsdp, as those of LibTorch: a copy would be another
# variable.
set -euo pipefail
out=$1
shift
callers=()
while [[ $1 != -- ]]; do
  callers+=("$1")
  shift
done
shift
objects=()
while (($#)) && [[ $1 != -- ]]; do
  objects+=("$1")
  shift
done
shift

mkdir -p "${out%/*}"
# Without groups of sections: the linker drops a group that another object has too, and with it what
# is visible no more.
ld -r --force-group-allocation -o "$out.linked" "${objects[@]}"
# unique FILE...: prints the names of variables of which a program has one.
unique() {
  nm --defined-only --extern-only --format=posix "$@" |
    awk '$2 == "u" || ($2 == "V" && $1 !~ /^_ZT[VTIS]/) { print $1 }' | sort -u
}
unique "$out.linked" >"$out.unique"
{
  echo "# objcopy takes no empty list"
  comm -12 "$out.unique" <(unique "$@")
  grep -vE '^_Z(GV|TW|TH)?Z*NK?4fsdp' "$out.unique" || true
  nm --undefined-only --format=posix "${callers[@]}" | awk 'NF > 1 { print $1 }'
} >"$out.visible"
# Those are weak: the program takes one of each. (No other names: a weak one that is undefined would
# take no object out of an archive.)
echo "# nor here" >>"$out.unique"
objcopy --weaken-symbols="$out.unique" "$out.linked"
objcopy --keep-global-symbols="$out.visible" "$out.linked" "$out"
rm "$out.linked" "$out.visible" "$out.unique"
