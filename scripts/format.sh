#!/usr/bin/env bash
# Formats every C++ file of the repository. With --check it changes nothing, and fails if a file is
# not formatted.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"

cd "$root"
action=(-i)
if [[ ${1-} == --check ]]; then action=(--dry-run -Werror --ferror-limit=1); fi
clang_format=$(tool clang_format clang-format)
# Symbolic links are left out: the files to which they point are also in the list, and clang-format
# would replace a link by a copy of its file.
sources | while read -r file; do [[ -L $file ]] || echo "$file"; done |
  xargs -d '\n' "$clang_format" "${action[@]}"
