#!/usr/bin/env bash
# stress.sh [ROUNDS]: runs all multi-rank tests of the reference solutions ROUNDS times (20), in
# shuffled order, on one core that they share with a busy loop. Continues where an earlier run of the
# same tests stopped. Prints a line for each round. Exits with 1 if any test failed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"
bin=$root/build/default/bin

rounds=${1:-20}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || refuse "stress wants a number of rounds, not '$rounds'"
build default all_tests
mapfile -t programs < <(grep -E '/(common|trainer|reference_task[2-7])_tests$' "$root/build/default/tests.txt")

# Keeps which programs passed in which round, in a file named after the programs' contents.
kept=$root/build/default/stress.$(cat "${programs[@]}" | sha256sum | cut -c 1-16)
touch "$kept"

taskset -c 0 sh -c 'while :; do :; done' &
neighbour=$!
totals=$(mktemp)
trap 'kill $neighbour; rm "$totals"' EXIT

failed=0
for ((round = 1; round <= rounds; ++round)); do
  start=$SECONDS tests=0
  for program in "${programs[@]}"; do
    name=$(basename "$program")
    if ! grep -q "^$round $name " "$kept"; then
      : >"$totals"
      if ! taskset -c 0 "$bin/run_tests" "$program" --filter '*/W*' --shuffle "$round" --quiet \
        --totals "$totals"; then
        echo "round $round, $name: run it with --gtest_shuffle --gtest_random_seed=$round"
        failed=$((failed + 1))
        continue
      fi
      echo "$round $name $(cut -d ' ' -f 1 "$totals")" >>"$kept"
    fi
    tests=$((tests + $(sed -n "s/^$round $name //p" "$kept")))
  done
  echo "round $round of $rounds: $tests tests passed, $((SECONDS - start)) s"
done
echo "$rounds rounds, $failed programs with failures"
((failed == 0))
