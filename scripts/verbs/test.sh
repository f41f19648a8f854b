#!/usr/bin/env bash
#: test [--all | --preset NAME]    build and run every test;
#:                                 --all: then also lint --all, which builds the cuda preset;
#:                                 --preset NAME: build the tests as debug, cuda, asan or tsan;
#:                                 --properties N: only N random models and N random programs, each
#:                                 compared with one process; --from SEED: the first seed
# Prints a line per suite, and at the end "N passed, N failed, N skipped". Exits with 1 if anything
# failed. With --properties, the first random program that differs is shortened as far as possible
# and printed.
source "${BASH_SOURCE[0]%/*}/../verb.sh"
source "$root/scripts/summed.sh"

help_if_asked "$@"
all='' preset=default properties='' from=1
while (($#)); do
  case $1 in
    --all) all=yes ;;
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

if [[ $properties ]]; then
  build "$preset" properties_tests
  exec env FSDP_PROPERTIES="$properties" FSDP_PROPERTIES_FROM="$from" \
    "$root/build/$preset/bin/properties_tests" --gtest_brief=1
fi
if [[ $all ]]; then
  summed test "lint --all"
  exit
fi

source "$root/scripts/totals.sh"
seconds_per_program=${FSDP_TEST_SECONDS:-900}
# Some tests crash on purpose, or ask for more memory than the machine has. They expect the signal
# or the exception. So these options keep the address sanitizer from ending the process with a
# report before the signal or the exception comes.
asan=handle_segv=0:handle_abort=0:allocator_may_return_null=1
export ASAN_OPTIONS=$asan${ASAN_OPTIONS:+:$ASAN_OPTIONS}

# run_program PROGRAM: runs the tests of the test program, and adds their counts to the file
# $totals.
run_program() {
  "$root/build/$preset/bin/run_tests" "$1" --seconds "$seconds_per_program" --totals "$totals" \
    </dev/null || true
}

# run_programs: reads paths of test programs from stdin, and runs these programs one after another.
run_programs() {
  local program
  while read -r program; do
    echo "== $(basename "$program")"
    run_program "$program"
  done
}

# Runs all test programs. hosts_tests and common_tests spend much time waiting for ranks and hosts
# that do not answer, so they run at the same time as the other programs. Their output is shown at
# the end.
run_tests() {
  local waits='/(hosts|common)_tests$' waiting=$work/waiting
  grep -E "$waits" "$root/build/$preset/tests.txt" | run_programs >"$waiting" 2>&1 &
  grep -vE "$waits" "$root/build/$preset/tests.txt" | run_programs
  wait
  cat "$waiting"
}

# Runs the tests of task 1 with hidden cases (sizes, values and numbers of ranks that a seed
# selects), and with the ranks in a process of their own, as the grader does. Only task 1 can run so
# here, because the programs of the other tasks need the seed before they start a rank.
hidden_cases() (
  cd "$root/build/$preset/bin" || exit
  export FSDP_ROOT=$root FSDP_TEST_SEED=hidden FSDP_RANKS_OF=./reference_task1_tests
  ./reference_task1_tests --gtest_brief=1
)

if ! (build "$preset" all_tests); then
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
run_tests
if [[ $preset == default ]]; then check "hidden cases in two processes" hidden_cases; fi
print_totals
