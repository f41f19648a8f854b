#!/usr/bin/env bash
# scripts/gpu.sh [--dry | --collect DIR]: runs tests and timings on a machine with a GPU, in about
# eight minutes and without a network:
#   1. builds with CUDA what the next two steps need, in build/gpu
#   2. runs all GPU tests for which this machine has enough GPUs
#   3. measures our FSDP on one GPU, and PyTorch's FSDP2, DDP and an eager loop
#      (grading/peers/one_gpu.py)
# The results of step 3 are added to one_gpu.jsonl in build/gpu, or in the folder OUT if it is set;
# each run adds its line when it ends. If a test fails, step 3 runs too.
#   --dry      the same steps on the CPU, with the default build and a tiny model: the tests are
#              skipped and the timings have no meaning, but every line of all programs runs
#   --collect  copies packages that the GPU machine may lack (GoogleTest, the headers of
#              nlohmann/json, CLI11 and OpenSSL 3) from this machine into DIR. On the GPU machine,
#              set FSDP_DEPENDENCIES to DIR
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
