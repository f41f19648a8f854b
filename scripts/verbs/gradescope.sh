#!/usr/bin/env bash
#: gradescope OUT.zip              make Gradescope's autograder
source "${BASH_SOURCE[0]%/*}/../verb.sh"
python gradescope.py "$@"
