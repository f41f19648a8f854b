#!/usr/bin/env bash
#: submit OUT.zip                  check everything, and make the zip to hand in
source "${BASH_SOURCE[0]%/*}/../verb.sh"

help_if_option "$@"

# First checks that the zip can be made, because ./fsdp check takes minutes; then runs ./fsdp check
# and makes the zip.
submit() {
  local submit=("$root/.venv/bin/python3" "$root/grading/submit.py" "$@")
  (($# == 1)) || refuse "submit needs the name of the zip to make: OUT.zip"
  need_python
  "${submit[@]}"
  folder=$(mktemp -d)  # not local: the trap runs after this function
  trap 'rm -rf "$folder"' EXIT
  touch "$folder/refused"
  FSDP_REFUSED=$folder/refused "$root/fsdp" check --json "$folder/results" ||
    [[ -s $folder/results ]]
  "${submit[@]}" "$folder/results" "$folder/refused"
}

submit "$@"
