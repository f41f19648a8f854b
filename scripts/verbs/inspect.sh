#!/usr/bin/env bash
#: inspect CHECKPOINT [--tensors]  print what is in a checkpoint or in a safetensors file
source "${BASH_SOURCE[0]%/*}/../verb.sh"
run inspect "$@"
