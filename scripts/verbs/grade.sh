#!/usr/bin/env bash
#: grade SUBMISSION [OPTION...]    grade a folder or a zip that holds tasks/; see grade --help
#: grade --all FOLDER [OPTION...]  grade a class
#: grade --receipts FOLDER         audit the receipts of the models that a class has trained
source "${BASH_SOURCE[0]%/*}/../verb.sh"
python grade.py "$@"
