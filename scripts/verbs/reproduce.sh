#!/usr/bin/env bash
#: reproduce [OPTION...]           make our tables and print them beside the published ones; see
#:                                 reproduce --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"

build default reproduce reference_train
[[ -n $(value_of train "$@") ]] || set -- --train "$bin/reference_train" "$@"
exec "$bin/reproduce" "$@"
