#!/usr/bin/env bash
# scripts/fuzz.sh [SECONDS [TARGET...]]: runs clang's libFuzzer for SECONDS (default 60) on each
# target, and prints a line of results for each. A target (tests/fuzz) passes the inputs to a
# function of the course that parses input; default: all targets. Exits with 1 if a target failed;
# the input that made it fail is in build/fuzz/found/TARGET. Inputs that reach new code are in
# build/fuzz/corpus/TARGET.
# scripts/fuzz.sh --keep TARGET FILE...: adds the files as inputs to tests/fuzz/corpus.tar.gz, which
# ./fsdp test reads.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"

archive=$root/tests/fuzz/corpus.tar.gz
work=$(mktemp -d /dev/shm/fsdp_fuzz_XXXXXX)
trap 'rm -rf "$work"' EXIT
tar -xzf "$archive" -C "$work"

if [[ ${1-} == --keep ]]; then
  [[ -d $work/corpus/${2:-.none} ]] ||
    refuse "--keep '${2-}': takes a target: $(ls "$work/corpus" | paste -sd ' ')"
  for input in "${@:3}"; do
    cp "$input" "$work/corpus/$2/found-$(sha256sum "$input" | head -c 8)"
  done
  # With these options of tar and gzip, the archive has no times and no owners, so equal inputs make
  # equal archives.
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work" -cf - corpus |
    gzip -n -9 >"$work/new"
  cp "$work/new" "$archive"
  exit
fi

seconds=${1:-60} targets=("${@:2}") status=0
if ((!${#targets[@]})); then mapfile -t targets < <(ls "$work/corpus"); fi
build fuzz fuzz
# Turns off the address sanitizer's checks for leaks and for overflows of containers. They would
# report errors that are none, because LibTorch is not instrumented and does not free some of its
# memory.
export TMPDIR=$work/tmp ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0 \
  UBSAN_OPTIONS=print_stacktrace=1
mkdir "$TMPDIR"
cd "$TMPDIR"

printf '%-15s %10s %8s %12s %12s %9s\n' target executions crashes largest/B at_once/B new_units
for target in "${targets[@]}"; do
  kept=$work/corpus/$target own=$root/build/fuzz/corpus/$target found=$root/build/fuzz/found/$target
  mkdir -p "$own" "$found"
  FSDP_FUZZ_TARGET=$target "$root/build/fuzz/bin/fuzz" -max_total_time="$seconds" -max_len=8192 \
    -timeout=60 -rss_limit_mb=2048 -malloc_limit_mb=64 -close_fd_mask=2 -print_final_stats=1 \
    -artifact_prefix="$found/" \
    "$own" "$kept" >"$own.log" 2>&1 || status=1
  awk -v name="$target" '
    /^largest allocation/ { largest = $3 + 0; live = $7 }
    /written to .*(crash|timeout|oom)-/ { ++crashes }
    /number_of_executed_units/ { runs = $2 } /new_units_added/ { units = $2 }
    END { printf "%-15s %10d %8d %12d %12d %9d\n", name, runs, crashes, largest, live, units }
    ' "$own.log"
done
exit $status
