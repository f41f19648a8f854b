#!/usr/bin/env bash
#: hello [OPTION...]               run three collectives of four ranks; see hello --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"
run hello "$@"
