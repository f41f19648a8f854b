#!/usr/bin/env bash
#: replay DIR --rank R [--run N] [--preset NAME] [-- COMMAND...]
#:                                 run one rank of a recording again, by itself (train --record DIR, check
#:                                 --record DIR); COMMAND, such as gdb, runs the program, of build NAME;
#:                                 --run N: the Nth time, from 0, that a test runs ranks
source "${BASH_SOURCE[0]%/*}/../verb.sh"

help_if_asked "$@"

# replay DIR --rank R [--run N] [--preset NAME] [-- COMMAND...]: runs a recorded rank by itself.
# With --preset NAME, builds the program with the CMake preset NAME and runs this build. COMMAND,
# such as gdb, runs the program; gdb stops before the rank begins. The recording can't run other
# code: it only supplies the name of a program of this repository, its arguments and its
# environment.
replay() {
  local dir='' rank='' run='*' preset='' program file words
  while (($#)); do
    case $1 in
      --rank | --run | --preset)
        [[ ${2-} ]] || refuse "replay: $1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
      --) break ;;
      -*) refuse "option '$1' is unknown to replay; allowed: --rank R, --run N, --preset NAME" ;;
      *) dir=$1 ;;
    esac
    shift
  done
  [[ -f $dir/command && $rank ]] || refuse "replay needs the folder of a recording, and --rank R"
  [[ ! $preset ]] || require_preset "$preset"
  file=$(printf '%s\n' "$(cd "$dir" && pwd)"/$run/rank-"$rank" | sort -V |
    tail -1)  # without --run, the last run
  [[ -f $file ]] || refuse "replay: $dir has no such rank"
  mapfile -d '' -t words <"$dir/command"  # written by command_of_process() in recording.cpp
  [[ ${words[1]-} =~ ^[a-z0-9_]+$ ]] || refuse "replay: $dir/command is none that --record writes"
  if [[ $preset ]]; then build "$preset" "${words[1]}"; fi
  program=$root/build/${preset:-default}/bin/${words[1]}
  [[ -x $program ]] || refuse "replay: $program is not built; --preset NAME builds it"
  cd "${words[0]}" || exit
  words=("${words[@]:2}")
  while [[ ${words[0]-} ]]; do
    if [[ ${words[0]} =~ ^(FSDP|OMP|MKL|DNNL|ONEDNN|ATEN|TORCH|GLOO)_[A-Z0-9_]+= &&
      ${words[0]} != OMP_TOOL* ]]; then
      export "${words[0]}"
    fi
    words=("${words[@]:1}")
  done
  shift || true
  if [[ ${1-} == gdb ]]; then
    shift
    set -- gdb -q -ex 'tbreak fsdp::replay_breakpoint_begin' \
      -ex 'break fsdp::replay_breakpoint_stuck' -ex run "$@" --args
  fi
  unset FSDP_RECORD
  FSDP_ROOT=$root FSDP_REPLAY=$file exec "$@" "$program" "${words[@]:1}"
}

replay "$@"
