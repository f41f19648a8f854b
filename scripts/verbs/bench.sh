#!/usr/bin/env bash
#: bench --peers [OPTION...]       measure our FSDP and PyTorch's FSDP2 and DDP; see bench --peers --help
#: bench --transport [OPTION...]   measure collectives and plain copies; see bench --transport --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"

help_if_asked "$@"

# With --peers, a Python program runs PyTorch's FSDP2 and DDP (the peers, which are Python programs)
# and our train program in turns.
bench() {
  local options=() argument what='' python=$root/.venv-peers/bin/python3
  for argument in "$@"; do
    case $argument in
      --peers | --transport) what=$argument ;;
      *) options+=("$argument") ;;
    esac
  done
  set -- ${options[@]+"${options[@]}"}
  case $what in
    --peers)
      [[ -x $python ]] || fail "PyTorch to compare with is missing: run ./fsdp setup --peers"
      build default reference_train peers_counter
      exec "$python" "$root/grading/peers/bench.py" "$@"
      ;;
    --transport) run transport_bench "$@" ;;
    *) refuse "bench needs --peers or --transport: what to time" ;;
  esac
}

bench "$@"
