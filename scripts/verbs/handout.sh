#!/usr/bin/env bash
#: handout OUT.tar.gz [--release K]  make the students' repository, with the solutions before task K
source "${BASH_SOURCE[0]%/*}/../verb.sh"
python course/handout.py "$@"
