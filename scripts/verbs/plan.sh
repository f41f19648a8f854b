#!/usr/bin/env bash
#: plan OPTION...                  predict what a run costs on any number of ranks: bytes by class,
#:                                 traffic, time; or find the settings that fit; see plan --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"
run plan "$@"
