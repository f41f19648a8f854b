#!/usr/bin/env bash
#: quiz --student ID [OPTION...]   write questions with settings of the student's own, mark a student's
#:                                 answers, or grade a class; see quiz --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"
run quiz "$@"
