#!/usr/bin/env bash
# Unpacks a handout, and prints how many seconds a student waits for the first results of ./fsdp
# check, and for the result after an edit. Run this script on an idle machine.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LIBTORCH=$(libtorch_folder)
export LIBTORCH
"$root/fsdp" handout "$work/handout.tar.gz" >/dev/null
tar -xzf "$work/handout.tar.gz" -C "$work"
cd "$work/fsdp-course"

# timed FILE PROBLEM: appends a comment to the source file FILE, so that ninja compiles it again.
# Then prints how many seconds ./fsdp check PROBLEM takes, with the build. If FILE is '', no file is
# changed.
timed() {
  local start=$EPOCHREALTIME
  if [[ $1 ]]; then echo "// edited" >>"tasks/$1"; fi
  ./fsdp check $2 >"$work/output" 2>&1 || true  # a failed test is a result too
  awk -v from="$start" -v to="$EPOCHREALTIME" -v what="${1:-nothing}, problem ${2:-all}" \
    'BEGIN { printf "%-56s %6.1f s\n", what, to - from }'
}

timed '' ''
for _ in first edit; do timed task1_meta_init/meta_init.cpp 1.1; done
for task in 1 2; do
  sources_of_task "$task" "$root/solutions" |
    while read -r file; do install -D -m 644 "$root/solutions/$file" "tasks/$file"; done
done
for _ in first edit; do timed task2_flat_parameter/flat_parameter.cpp 2.3; done
