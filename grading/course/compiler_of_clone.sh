#!/usr/bin/env bash
# Takes the place of the compiler in a clone of fresh_clone.py. It copies an output from the
# finished build FRESH_BUILD if that was made from the same sources, and otherwise compiles it with
# FRESH_CXX. So ninja runs every step of a build from nothing, but each step takes only the time of
# a copy.
# - FRESH_NEEDS has lines "OUTPUT TAB FILE": files of the build folder that the compiler read for
#   OUTPUT. A step fails if such a file is missing, because then no earlier step has made it.
# - FRESH_TASKS is set if tasks/ of the clone differs from tasks/ of the finished build.
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

# Succeeds if the build folder is the clone's and FRESH_BUILD was made from the same sources.
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

precompiled=$folder/CMakeFiles/fsdp_memory.dir/cmake_pch.hxx.gch
if ! is_the_same; then
  # The precompiled header has 0.5 GB and is copied only now, because only a compiler reads it.
  if [[ $folder == "$FRESH_CLONE"/build/default && -f $precompiled && ! -s $precompiled ]]; then
    cp "$FRESH_BUILD/${precompiled#"$folder/"}" "$precompiled"
  fi
  exec "$FRESH_CXX" "$@"
fi
while IFS=$'\t' read -r _ needed; do
  if [[ ! -e $needed ]]; then
    echo "$output: error: $needed is missing, and no step before has made it" >&2
    exit 1
  fi
done < <(awk -F '\t' -v output="$output" '$1 == output' "$FRESH_NEEDS")
if [[ $output == *.gch ]]; then : >"$output"; else cp "$finished" "$output"; fi
if [[ $dependencies ]]; then echo "$output: $source" >"$dependencies"; fi
