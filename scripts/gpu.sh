#!/usr/bin/env bash
# scripts/gpu.sh [--dry | --collect DIR]: on a machine with a GPU, in some eight minutes and without
# a network:
#   1. builds with CUDA what the next two steps need, in build/gpu
#   2. runs all tests for GPUs that this machine allows
#   3. times our FSDP on one GPU beside PyTorch's FSDP2, DDP and an eager loop
#      (grading/peers/one_gpu.py)
# The results of 3 are added to one_gpu.jsonl in that folder, or in OUT if it is set, a line as soon
# as a run has ended. If a test fails, the programs are timed nevertheless.
#   --dry      the same on the CPU, with the usual build and a tiny model: the tests are skipped,
#              nothing is timed that means anything, but every line of all programs runs
#   --collect  copies what the machine may lack (GoogleTest, the headers of nlohmann/json, CLI11 and
#              OpenSSL 3) from where it is installed into DIR, which FSDP_DEPENDENCIES names on the
#              machine with the GPU
# Needs a CUDA toolkit, CMake, a C++ compiler, and a python3 (or PYTHON) with torch 2.11.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"

dry=''
case ${1-} in
  --collect)
    mkdir -p "${2:?}"
    cp -r /usr/src/googletest/googletest /usr/include/{nlohmann,CLI,openssl} "$2" &&
      cp -r "/usr/include/$(uname -m)-linux-gnu/openssl" "$2" ||
      fail "the packages to collect are libgtest-dev, nlohmann-json3-dev, libcli11-dev and" \
        libssl-dev
    exit
    ;;
  --dry) dry=--dry ;;
  '') ;;
  *) refuse "option '$1' is unknown to gpu.sh; allowed: --dry, --collect DIR" ;;
esac

python=${PYTHON:-python3}
if [[ $dry ]]; then
  build=$root/build/default
  build default gpu_tests run_tests reference_train
  if [[ -x $root/.venv-peers/bin/python ]]; then python=$root/.venv-peers/bin/python; fi
else
  build=$root/build/gpu
  nvidia-smi --query-gpu=name,memory.total --format=csv,noheader || say "there is no GPU"
  if [[ ! -f $build/CMakeCache.txt ]] && command -v ninja >/dev/null; then
    export CMAKE_GENERATOR=Ninja
  fi
  cmake -S "$root" -B "$build" -DFSDP_CUDA=ON
  cmake --build "$build" --parallel "$(jobs_of_build)" --target gpu_tests run_tests reference_train
fi

status=0
FSDP_ROOT=$root "$build/bin/run_tests" "$build/bin/gpu_tests" \
  --seconds "${FSDP_TEST_SECONDS:-240}" || status=$?
results=${OUT:-$build}/one_gpu.jsonl
"$python" "$root/grading/peers/one_gpu.py" --train "$build/bin/reference_train" --out "$results" \
  $dry || status=$?
say "the runs are in $results"
exit "$status"
