#!/usr/bin/env bash
#: leaderboard [FILE]              measure the choices in FILE (tasks/leaderboard.toml) with your own seven
#:                                 tasks: time on a simulated machine, under a limit of memory
source "${BASH_SOURCE[0]%/*}/../verb.sh"
source "$root/scripts/stacks.sh"

# If an argument of ./fsdp leaderboard asks for help, the train program is not built.
if asks_for_help "$@"; then
  program=
else
  build_train "$@"
fi
python leaderboard.py "$program" "$@"
