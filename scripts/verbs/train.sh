#!/usr/bin/env bash
#: train OPTION...                 train a model on W ranks; ./fsdp train --help lists the options
source "${BASH_SOURCE[0]%/*}/../verb.sh"
source "$root/scripts/stacks.sh"

build_train "$@"
exec "$program" "$@"
