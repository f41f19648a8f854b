#!/usr/bin/env bash
#: export OPTION...                write a checkpoint's parameters for other programs, such as
#:                                 transformers; see export --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"
run export_model "$@"
