#!/usr/bin/env bash
# tidy.sh [TOTALS [--all]]: runs clang-tidy on the files that have changed since origin/main or, on
# main, in the last commit, but on at most FSDP_TIDY_FILES of them (24 if it is not set); with
# --all, on every file. A file that has passed is checked again only after a change of the file, of
# one of our headers that it includes, or of the settings. Adds a line "passed failed skipped" to
# the file TOTALS; files beyond the limit count as skipped.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"

cd "$root"
totals=${1:-/dev/null}
all=${2-}
at_most=${FSDP_TIDY_FILES:-24}  # files in one run without --all; a file takes about 20 s
stamps=$root/.cache/tidy
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$stamps"

# clang-tidy runs without the precompiled header, because clang cannot read the one that GCC makes.
# For this reason clang-tidy also finds files that do not include what they use.
configure default
ninja -C build/default build.ninja >/dev/null
# If several stacks compile a file, clang-tidy checks it with the compiler options of the first
# stack.
awk '
  /^{/ { entry = "" }
  { entry = entry $0 "\n" }
  /^  "file":/ { file = $0 }
  /^}/ && !seen[file]++ { sub(/,?\n$/, "", entry); printf "%s%s", n++ ? ",\n" : "[\n", entry }
  END { print "\n]" }' build/default/compile_commands.json |
  sed -E 's/ -(Werror|Winvalid-pch|include [^ ]*|Xclang [^ ]*)//g' >"$work/compile_commands.json"
clang_tidy=$(tool clang_tidy clang-tidy)

# Prints the source files to check: each changed .cpp file and, for each changed header, the first
# .cpp file that includes it.
sources_to_check() {
  local file
  { changed_since_base | grep '\.\(cpp\|h\)$' || true; } | while read -r file; do
    awk -v hash="$(sha256sum "$file" | cut -d ' ' -f 1)" \
      'index($0, hash) { print $1; exit }' "$work/closures"
  done
}

# Writes the file $work/closures. It has a line "FILE HASH..." for each .cpp file: its path, its
# hash, and the hashes of the repository's headers that it includes.
sources | .venv/bin/python3 grading/course/includes.py >"$work/closures"
libtorch=$(sed -n 's/^LibTorch_ROOT:PATH=//p' build/default/CMakeCache.txt)
settings=$( (cat .clang-tidy; echo "$clang_tidy"; echo "$libtorch") | sha256sum)
while read -r file hashes; do
  echo "$file $(sha256sum <<<"$settings $hashes" | cut -d ' ' -f 1)"
done <"$work/closures" >"$work/stamps"
in_build=$(sed -n 's/^ *"file": "\(.*\)".*$/\1/p' "$work/compile_commands.json" |
  while read -r file; do echo "${file#"$root"/}"; done)

if [[ $all ]]; then
  wanted=$(cut -d ' ' -f 1 "$work/closures")
  at_most=1000000
else
  wanted=$(sources_to_check)
fi
# Writes the file $work/todo, which lists the files to check: the files of $wanted in this order,
# each once. It leaves out files that are not compiled, and files that have passed before: their
# hash is the name of a file in the folder $stamps.
awk -v stamps="$stamps" '
  FILENAME == ARGV[1] { stamp[$1] = $2; next }
  FILENAME == ARGV[2] { built[$1] = 1; next }
  ($1 in built) && ($1 in stamp) && !seen[$1]++ {
    path = stamps "/" stamp[$1]
    if ((getline ignored < path) < 0) print $1, stamp[$1]
    else close(path)
  }' "$work/stamps" <(echo "$in_build") <(echo "$wanted") >"$work/todo"
head -n "$at_most" "$work/todo" >"$work/now"
now=$(wc -l <"$work/now")
left=$(($(wc -l <"$work/todo") - now))
if ((now > 0)); then say "clang-tidy on $now files, about $((now * 20 / $(nproc) / 60 + 1)) min"; fi

check_file() {
  local file=${1% *} stamp=${1#* } log
  log=$work/$(basename "$stamp").log
  if "$clang_tidy" -p "$work" --quiet "$file" >"$log" 2>/dev/null; then
    touch "$stamps/$stamp"
    rm -f "$log"
  else
    echo "$file" >>"$work/failed"
  fi
}
export -f check_file
export work stamps clang_tidy
touch "$work/failed"
xargs -r -d '\n' -P "$(nproc)" -I '{}' bash -c 'check_file "$1"' _ '{}' <"$work/now"

failed=$(wc -l <"$work/failed")
printf '%-36s %3d passed, %d failed, %d skipped\n' clang-tidy $((now - failed)) "$failed" "$left"
if compgen -G "$work/*.log" >/dev/null; then sed 's/^/    /' "$work"/*.log; fi
if ((left > 0)); then
  echo "    skipped: $left more files; the next run or lint --all checks them"
fi
echo $((now - failed)) "$failed" "$left" >>"$totals"
((failed == 0))
