#!/usr/bin/env bash
#: why [TASK|PROBLEM] [OPTION...]  after a red test: print the line of your code that wrote the wrong value;
#:                                 options as of check, such as --test NAME/W2; --verbose: all functions
source "${BASH_SOURCE[0]%/*}/../verb.sh"
help_if_asked "$@"

# why [TASK|PROBLEM] [--verbose] [OPTION...]: runs the tests as ./fsdp check does and records their
# ranks. Then replays the rank with the first wrong observation (programs/why).
why() {
  local argument verbose=() options=() chosen status=0
  for argument; do
    case $argument in
      --verbose) verbose=(--verbose) ;;
      --record | --record=*) refuse "why: leave out --record; why records by itself" ;;
      *) options+=("$argument") ;;
    esac
  done
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "$root/scripts/verbs/check.sh" ${options[@]+"${options[@]}"} --record "$work/recording" \
    >"$work/check" || status=$?
  if ((status == 0)); then
    echo "why: nothing is wrong: all these tests pass."
    return
  fi
  build default why
  chosen=$("$bin/why" --choose "$work/recording") || {
    cat "$work/check" >&2
    return "$status"
  }
  mapfile -t chosen <<<"$chosen"
  "$root/scripts/verbs/replay.sh" "${chosen[0]}" --rank "${chosen[1]}" --run "${chosen[2]}" -- \
    "$bin/why" ${verbose[@]+"${verbose[@]}"} "${chosen[0]}"
}

why "$@"
