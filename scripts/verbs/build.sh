#!/usr/bin/env bash
#: build [--preset NAME] [TARGET]  build TARGET, or everything; NAME: default, debug, cuda, asan, tsan
source "${BASH_SOURCE[0]%/*}/../verb.sh"

help_if_asked "$@"
take_preset build "$@"
build "$preset" "${rest[@]:-everything}"
