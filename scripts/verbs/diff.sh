#!/usr/bin/env bash
#: diff --a "OPTION..." --b "..."  train twice with these options, and find the step, microbatch, unit
#:                                 and phase where the bits first differ; see diff --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"
source "$root/scripts/stacks.sh"

diff_runs() {
  local side words program binaries=()
  for side in a b; do
    if [[ $(value_of "binary-$side" "$@") ]] || asks_for_help "$@"; then continue; fi
    read -ra words <<<"$(value_of "$side" "$@")"
    build_train ${words[@]+"${words[@]}"}
    binaries+=("--binary-$side" "$program")
  done
  run diff "$@" ${binaries[@]+"${binaries[@]}"}
}

diff_runs "$@"
