#!/usr/bin/env bash
#: quiz --student ID [OPTION...]   written questions with settings of the student's own: write them, mark
#:                                 answers, or grade a class; see quiz --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"
run quiz "$@"
