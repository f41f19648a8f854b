#!/usr/bin/env bash
#: generate OPTION...              continue a text with a trained model; see generate --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"
run generate "$@"
