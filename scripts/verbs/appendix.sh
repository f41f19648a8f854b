#!/usr/bin/env bash
#: appendix NAME                   run a program of appendix/
source "${BASH_SOURCE[0]%/*}/../verb.sh"

help_if_option "$@"

appendix() {
  local names
  names=$(cd "$root/appendix" && ls ./*.cpp | sed 's#\./\(.*\)\.cpp#\1#' | paste -sd ' ' |
    sed 's/ /, /g')
  [[ -f $root/appendix/${1-}.cpp ]] || refuse "appendix needs the name of a program: $names"
  run "appendix_$1"
}

appendix "$@"
