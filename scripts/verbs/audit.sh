#!/usr/bin/env bash
#: audit FILE [OPTION...]          compute drawn pieces of a run again, and compare them with the
#:                                 receipt of train --receipt; see audit --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"
source "$root/scripts/stacks.sh"

audit() {
  local program
  if asks_for_help "$@"; then run audit "$@"; fi
  build_train
  run audit "$@" --binary "$program"
}

audit "$@"
