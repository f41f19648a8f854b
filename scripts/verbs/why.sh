#!/usr/bin/env bash
#: why [TASK|PROBLEM] [OPTION...]  after a red test: print the line of your code that wrote the wrong value;
#:                                 options as of check, such as --test NAME/W2; --verbose: all functions
#: why --a "OPTION..." --b "..."   the same for the first number that differs between two runs; options as of diff
source "${BASH_SOURCE[0]%/*}/../verb.sh"
help_if_asked "$@"

# why [TASK|PROBLEM] [--verbose] [OPTION...]: runs the tests as ./fsdp check does and records their
# ranks. Then replays the rank with the first wrong observation (programs/why). If the code is a
# student's, runs the test with the reference solution too, to find where the two runs part.
# why --a "OPTION..." --b "OPTION..." [--verbose]: the same for two runs that ./fsdp diff compares.
why() {
  local argument verbose=() options=() chosen words task reference=() status=0
  local verb=check equal="all these tests pass"
  for argument; do
    case $argument in
      --verbose) verbose=(--verbose) ;;
      --record | --record=*) refuse "why: leave out --record; why records by itself" ;;
      --against | --against=* | --save | --save=*)
        refuse "why: leave out ${argument%%=*}; why trains both runs, --a and --b" ;;
      *) options+=("$argument") ;;
    esac
    case $argument in
      --a | --a=* | --b | --b=*) verb=diff equal="the bits of the two runs are equal" ;;
    esac
  done
  if [[ $verb == diff && ! ($(value_of a "$@") && $(value_of b "$@")) ]]; then
    refuse "why: two runs need --a and --b"
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "$root/scripts/verbs/$verb.sh" ${options[@]+"${options[@]}"} --record "$work/recording" \
    >"$work/output" || status=$?
  if ((status == 0)); then
    echo "why: nothing is wrong: $equal."
    return
  fi
  if [[ $verb == diff && ! -f $work/recording/wrong ]]; then  # a run was refused, or has failed
    cat "$work/output"
    return "$status"
  fi
  build default why
  chosen=$("$bin/why" --choose "$work/recording") || {
    cat "$work/output" >&2
    return "$status"
  }
  mapfile -t chosen <<<"$chosen"
  mapfile -d '' -t words <"${chosen[0]}/command"
  task=${words[1]##*_task}
  task=${task%_tests}
  # A handout does not have the solutions of all tasks.
  if [[ ${words[1]} == mine_*_tests ]] && grep -q "^build bin/reference_task${task}_tests:" \
    "$root/build/default/build.ninja"; then
    build default "reference_task${task}_tests"
    reference=(--reference "$bin/reference_task${task}_tests")
  fi
  "$root/scripts/verbs/replay.sh" "${chosen[0]}" --rank "${chosen[1]}" --run "${chosen[2]}" -- \
    "$bin/why" ${verbose[@]+"${verbose[@]}"} ${reference[@]+"${reference[@]}"} "${chosen[0]}"
}

why "$@"
