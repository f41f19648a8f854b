#!/usr/bin/env bash
#: site OUT [--students]           make the course as a folder of pages, which need no server and no
#:                                 network; --students: only the files that handout packs
source "${BASH_SOURCE[0]%/*}/../verb.sh"

asks_for_help "$@" || "$root/scripts/verbs/setup.sh" --python-only --site
python site/make.py "$@"
