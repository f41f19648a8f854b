#!/usr/bin/env bash
# Counts the lines of all tracked text but writeup/: by top folder, and in total. Fails if there are more
# than $1, if it is given.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

git grep -cI '' -- . ':!writeup' |
  awk -F: -v most="${1:-0}" '{
      folder = $1 ~ "/" ? substr($1, 1, index($1, "/")) : "./"
      lines[folder] += $NF
      total += $NF
    }
    END {
      for (folder in lines) printf "%7d %s\n", lines[folder], folder | "sort -rn"
      close("sort -rn")
      printf "%7d lines\n", total
      if (most && total > most) { printf "%7d at most\n", most; exit 1 }
    }'
