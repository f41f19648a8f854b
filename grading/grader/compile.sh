#!/usr/bin/env bash
# compile.sh COMPILER ARGUMENT...: compiles or links what is graded. If the grader builds (it sets
# FSDP_SANDBOX), the compiler runs in the sandbox: it writes to a folder of its own, and what it made is
# then moved to where the build wants it. g++ takes its assembler from assembler/.
set -eu
if [[ ! ${FSDP_SANDBOX-} ]]; then exec "$@"; fi

scratch=$(mktemp -d "$PWD/graded_output.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
if [[ ${FSDP_SANDBOX_USER-} ]]; then chown "$FSDP_SANDBOX_USER" "$scratch"; fi

folder=${BASH_SOURCE[0]%/*}
command=() wanted=() before=
for argument; do
  if [[ $before == -o || $before == -MF ]]; then
    wanted+=("$argument")
    argument=$scratch/${argument##*/}
  fi
  command+=("$argument")
  before=$argument
done

FSDP_FOLDER=$PWD FSDP_WRITES=$scratch "$folder/sandbox.sh" "${command[0]}" -B "$folder/assembler" "${command[@]:1}"
for path in "${wanted[@]}"; do
  made=$scratch/${path##*/}
  if [[ ! -f $made || -L $made ]]; then
    echo "error: the compiler wrote no $path" >&2
    exit 1
  fi
  chown "$(id -u):$(id -g)" "$made"
  mv -f "$made" "$path"
done
