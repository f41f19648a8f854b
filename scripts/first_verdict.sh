#!/usr/bin/env bash
# first_verdict.sh [HANDOUT.tar.gz]: how long a student waits. Unpacks a handout into an empty folder,
# with the LibTorch of this copy, and prints how many seconds it takes
# - until ./fsdp check has shown the blank course,
# - until the first verdict on problem 1.1, in a task in which one line was changed,
# - from an edit of a .cpp file to the verdict of its problem, with the solutions of tasks 1 and 2,
# - from an edit of a header to the same verdict.
# Run it on a machine that does nothing else.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LIBTORCH=$(libtorch_folder)
export LIBTORCH
[[ $LIBTORCH ]] || fail "first_verdict: LibTorch is missing; run ./fsdp setup"
if [[ ${1-} ]]; then
  cp "$1" "$work/handout.tar.gz"
else
  "$root/fsdp" handout "$work/handout.tar.gz" >/dev/null
fi
tar -xzf "$work/handout.tar.gz" -C "$work"
course=$work/fsdp-course

# timed WHAT TARGET COMMAND...: runs the command in the handout; prints its seconds.
timed() {
  local what=$1 most=$2 start=$EPOCHREALTIME
  shift 2
  (cd "$course" && "$@") >"$work/output" 2>&1 || true  # a test that fails is a verdict
  awk -v what="$what" -v most="$most" -v from="$start" -v to="$EPOCHREALTIME" \
    'BEGIN { printf "%-64s %6.1f s   (at most %s)\n", what, to - from, most }'
}

# edit FILE: a comment, as ninja goes by the time of a file.
edit() { echo "// edited" >>"$course/$1"; }

timed "the blank course, from unpacking" 20 ./fsdp check
edit tasks/task1_meta_init/meta_init.cpp
timed "the first verdict on problem 1.1" 180 ./fsdp check 1.1
edit tasks/task1_meta_init/meta_init.cpp
timed "an edit of meta_init.cpp, problem 1.1" 10 ./fsdp check 1.1
edit tasks/task1_meta_init/meta_init.h
timed "an edit of meta_init.h, problem 1.1" 20 ./fsdp check 1.1
for task in 1 2; do
  sources_of_task "$task" "$root/solutions" | while read -r file; do
    cp "$root/solutions/$file" "$course/tasks/$file"
  done
done
timed "the first verdict on problem 2.3, tasks 1 and 2 written" 180 ./fsdp check 2.3
edit tasks/task2_flat_parameter/flat_parameter.cpp
timed "an edit of flat_parameter.cpp, problem 2.3" 10 ./fsdp check 2.3
edit tasks/task2_flat_parameter/flat_parameter.h
timed "an edit of flat_parameter.h, problem 2.3" 20 ./fsdp check 2.3
