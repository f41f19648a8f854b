#!/usr/bin/env bash
#: lint [--all]                    check format and rules; for what has changed since origin/main, and a
#:                                 small fixed part, also clang-tidy, faults, submissions and the output in
#:                                 texts; --all: for everything, and also the commands of the pages in a
#:                                 clone that has built nothing, and the cuda preset
# Prints a line for each check, and at the end "N passed, N failed, N skipped". Exits with 1 if
# anything failed.
source "${BASH_SOURCE[0]%/*}/../verb.sh"

help_if_asked "$@"
all=''
case ${1-} in
  '') ;;
  --all) all=--all ;;
  *) refuse "option '$1' is unknown to lint; allowed: --all" ;;
esac
source "$root/scripts/totals.sh"

# bank NAME: runs the checks of the Python program grading/NAME.py; without --all, only those that
# the changes in this branch affect.
# - faults: a test must catch each fault;
# - submissions: honest submissions must get all points, and cheating ones none;
# - course/samples: the output that the course's texts show must be the output of the command.
bank() {
  local which=--changed
  if [[ $all ]]; then which=''; fi
  "$root/.venv/bin/python3" "$root/grading/$1.py" $which --totals "$totals"
}

# In a fresh clone, runs the commands that the course's pages show; without --all, only those that
# the changes in this branch affect.
fresh_clone() {
  "$root/.venv/bin/python3" "$root/grading/course/fresh_clone.py" --totals "$totals" \
    "$([[ $all ]] && echo --pages || echo --changed)"
}

# If a CUDA toolkit is installed, builds everything with the preset cuda; this needs no GPU.
# Otherwise the check counts as skipped.
build_cuda() {
  if command -v nvcc >/dev/null || [[ -d ${CUDA_PATH:-/usr/local/cuda}/include ]]; then
    check "cuda preset builds" env CI=true "$root/fsdp" build --preset cuda
  else
    echo "cuda preset: skipped, no CUDA toolkit was found"
    echo 0 0 1 >>"$totals"
  fi
}

# Installs the tools that the checks of lint run. If Sphinx can't be installed, this still succeeds,
# and the tests of the site are skipped.
install_tools() {
  local setup=$root/scripts/verbs/setup.sh
  "$setup" && "$setup" --plots && { "$setup" --python-only --site || true; }
}

# Installs the tools and builds the programs that the checks below run. If this fails, no check
# runs.
if ! install_tools || ! (build default everything); then
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
check "format" "$root/scripts/format.sh" --check
counted "$root/scripts/rules.sh" "$totals"
counted "$root/scripts/tidy.sh" "$totals" $all
check "what a GPU will run, on the CPU" env OUT="$work" "$root/scripts/gpu.sh" --dry
counted "$root/scripts/test_install.sh" "$totals" $all
for name in faults submissions course/samples; do counted bank "$name"; done
counted fresh_clone
if [[ $all ]]; then build_cuda; fi
print_totals
