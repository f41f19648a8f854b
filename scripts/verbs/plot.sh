#!/usr/bin/env bash
#: plot LOG.jsonl... --out FILE    draw loss, accuracy and tokens/s of runs, as .svg or .png; or write
#:                                 all numbers of the steps as .csv
source "${BASH_SOURCE[0]%/*}/../verb.sh"
python plot.py "$@"
