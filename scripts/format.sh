#!/usr/bin/env bash
# Formats every C++ file of the repository. With --check it changes nothing, and fails if it would
# change a file.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"

cd "$root"
action=(-i)
if [[ ${1-} == --check ]]; then action=(--dry-run -Werror --ferror-limit=1); fi
clang_format=$(tool clang_format clang-format)
# Not a link: its target is a file of its own, and clang-format would put a copy in the link's
# place.
sources | while read -r file; do [[ -L $file ]] || echo "$file"; done |
  xargs -d '\n' "$clang_format" "${action[@]}"
