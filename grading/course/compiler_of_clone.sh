#!/usr/bin/env bash
# This script takes the place of the compiler in the clone that fresh_clone.py makes. It copies an
# output from the finished build FRESH_BUILD if that output was made from the same sources; if not,
# it runs the real compiler, FRESH_CXX. So ninja runs every step of a build from nothing, but a step
# whose output is copied takes only the time of the copy.
# - FRESH_NEEDS is a file with lines "OUTPUT TAB FILE": the compiler read FILE, a file of the build
#   folder, for OUTPUT. A step fails if such a file is missing, because then no earlier step has
#   made it.
# - FRESH_TASKS is not empty if tasks/ of the clone differs from tasks/ of the finished build. Then
#   the programs bin/mine* are linked and not copied.
set -euo pipefail
output='' dependencies='' source=''
words=("$@")
for ((i = 0; i < $#; ++i)); do
  case ${words[i]} in
    -o) output=${words[i + 1]} ;;
    -MF) dependencies=${words[i + 1]} ;;
    -c) source=${words[i + 1]} ;;
  esac
done
finished=$FRESH_BUILD/$output
folder=$PWD

# Succeeds if `output` is in the build folder of the clone and FRESH_BUILD has a file at the same
# path, made from the same sources.
is_the_same() {
  [[ $output && $output != /* && $folder == "$FRESH_CLONE"/build/* && -f $finished ]] || return 1
  if [[ ! $source ]]; then
    [[ $output != bin/mine* || ! ${FRESH_TASKS-} ]]
  elif [[ $source == "$FRESH_CLONE"/build/* ]]; then
    true  # a file of a unity build, or a source that CMake made
  else
    cmp -s "$source" "$FRESH_ROOT/${source#"$FRESH_CLONE/"}"
  fi
}

if ! is_the_same; then
  # The precompiled header is large: 0.5 GB with g++. Until now an empty file stood for it; the real
  # one is copied before the first real compilation, because only a compiler reads it. g++ calls it
  # .gch, and clang++ .pch.
  for precompiled in "$folder"/CMakeFiles/fsdp_memory.dir/cmake_pch.hxx.[gp]ch; do
    if [[ $folder == "$FRESH_CLONE"/build/default && -f $precompiled && ! -s $precompiled ]]; then
      cp "$FRESH_BUILD/${precompiled#"$folder/"}" "$precompiled"
    fi
  done
  exec "$FRESH_CXX" "$@"
fi
while IFS=$'\t' read -r _ needed; do
  if [[ ! -e $needed ]]; then
    echo "$output: error: $needed is missing, and no step before has made it" >&2
    exit 1
  fi
done < <(awk -F '\t' -v output="$output" '$1 == output' "$FRESH_NEEDS")
if [[ $output == *.[gp]ch ]]; then : >"$output"; else cp "$finished" "$output"; fi
if [[ $dependencies ]]; then echo "$output: $source" >"$dependencies"; fi
