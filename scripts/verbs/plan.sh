#!/usr/bin/env bash
#: plan OPTION...                  predict what a run costs on any number of ranks: bytes by class,
#:                                 traffic, time; --search --machine 8xA100-80GB: what shall I run?
source "${BASH_SOURCE[0]%/*}/../verb.sh"
run plan "$@"
