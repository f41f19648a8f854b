#!/usr/bin/env bash
#: test [--all | --preset NAME]    build and run every test, then check format, rules and clang-tidy;
#:                                 --all: clang-tidy on every file, the cuda preset, and the commands of
#:                                 the pages in a clone that has built nothing;
#:                                 --preset: only the tests, built as debug, cuda, asan or tsan;
#:                                 --properties N: only N random models and N random programs, each
#:                                 compared with one process; --from SEED: the first of them
# Builds and runs every test, then checks format, the repository's rules and clang-tidy. With a --preset
# other than default, it only runs the tests. Prints a line per suite, and at the end
# "N passed, N failed, N skipped". Exits with 1 if anything failed.
#   --properties N [--from SEED]   only trains N random models, and runs N random programs of users,
#                                  each compared with one process; of the first that differs, a
#                                  program is shown as short as it can be
source "${BASH_SOURCE[0]%/*}/../verb.sh"
help_if_asked "$@"

all='' preset=default properties='' from=1
while (($#)); do
  case $1 in
    --all) all=--all ;;
    --preset)
      preset=${2-}
      require_preset "$preset"
      shift
      ;;
    --properties | --from)
      [[ ${2-} =~ ^[1-9][0-9]{0,8}$ ]] || refuse "$1 '${2-}': takes a number above 0"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    *)
      refuse "option '$1' is unknown to test; allowed: --all, --preset NAME, --properties N," \
        "--from SEED"
      ;;
  esac
  shift
done

# Some tests crash on purpose, or ask for more memory than there is. They expect the signal or the exception, not
# the sanitizer's report of it.
export ASAN_OPTIONS=handle_segv=0:handle_abort=0:allocator_may_return_null=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}

seconds_per_program=${FSDP_TEST_SECONDS:-900}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
totals=$work/totals  # lines "passed failed skipped"
touch "$totals"

# Runs a script that adds to the totals itself. If it ends without adding anything, it has failed.
counted() {
  local before
  before=$(failed_so_far)
  if ! "$@" && [[ $(failed_so_far) == "$before" ]]; then
    echo "$1 broke off"
    echo 0 1 0 >>"$totals"
  fi
}
failed_so_far() { awk '{ sum += $2 } END { print sum + 0 }' "$totals"; }

run_tests() {
  local program
  while read -r program; do
    echo "== $(basename "$program")"
    "$root/build/$preset/bin/run_tests" "$program" --seconds "$seconds_per_program" \
      --totals "$totals" </dev/null || true
  done <"$root/build/$preset/tests.txt"
}

# One of $2 parts of the bank $1, another one at every commit: a few faults, which their tests have to
# catch; some submissions, of students who have all points and of cheats who have none; some of the output that
# the texts show.
run_part() {
  local turn
  turn=$(git -C "$root" rev-list --count HEAD 2>/dev/null || echo 0)
  "$root/.venv/bin/python3" "$root/grading/$1.py" --part "$turn/$2" --totals "$totals"
}

# The hidden cases of task 1, with the ranks in a process of their own, as the grader runs them. No other task's
# program gets to a rank before it has asked for the seed.
hidden_cases() (
  cd "$root/build/$preset/bin" || exit
  FSDP_ROOT=$root FSDP_TEST_SEED=hidden FSDP_RANKS_OF=./reference_task1_tests ./reference_task1_tests --gtest_brief=1
)

# If a CUDA toolkit is found, builds the whole cuda preset; this needs no GPU.
build_cuda() {
  if command -v nvcc >/dev/null || [[ -d ${CUDA_PATH:-/usr/local/cuda}/include ]]; then
    check "cuda preset builds" env CI=true "$root/fsdp" build --preset cuda
  else
    echo "cuda preset: skipped, no CUDA toolkit was found"
    echo 0 0 1 >>"$totals"
  fi
}

if [[ $properties ]]; then
  build "$preset" properties_tests
  exec env FSDP_PROPERTIES="$properties" FSDP_PROPERTIES_FROM="$from" \
    "$root/build/$preset/bin/properties_tests" --gtest_brief=1
fi
# Where the site can't be installed, its tests are skipped.
if ! { "$root/scripts/verbs/setup.sh" && "$root/scripts/verbs/setup.sh" --plots && { "$root/scripts/verbs/setup.sh" --python-only --site || true; } &&
       build "$preset" all_tests; }; then
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
run_tests
if [[ $preset == default ]]; then
  echo "== checks"
  check "format" "$root/scripts/format.sh" --check
  check "hidden cases in two processes" hidden_cases
  check "what a GPU will run, on the CPU" env OUT="$work" "$root/scripts/gpu.sh" --dry
  counted "$root/scripts/outside.sh" "$totals" $all
  counted "$root/scripts/lint.sh" "$totals"
  counted "$root/scripts/tidy.sh" "$totals" $all
  counted run_part faults 50
  counted run_part submissions 12
  counted run_part course/samples 4
  counted "$root/.venv/bin/python3" "$root/grading/course/fresh_clone.py" --totals "$totals" ${all:+--pages}
fi
if [[ $all ]]; then build_cuda; fi

read -r passed failed skipped < <(awk '{ p += $1; f += $2; s += $3 } END { print p, f, s }' "$totals")
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
