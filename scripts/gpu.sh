#!/usr/bin/env bash
# scripts/gpu.sh [--collect DIR]: builds with CUDA and runs all tests for GPUs that this machine allows, without
# a network. Needs a CUDA toolkit, CMake, a C++ compiler and a Python with torch 2.11, all of it already there.
# GoogleTest and the headers of nlohmann/json, CLI11 and OpenSSL 3 may be missing: where they are installed,
# --collect copies them into DIR, which FSDP_DEPENDENCIES names on the machine with the GPUs.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"

if [[ ${1-} == --collect ]]; then
  mkdir -p "${2:?}"
  cp -r /usr/src/googletest/googletest /usr/include/{nlohmann,CLI,openssl} "$2" &&
    cp -r "/usr/include/$(uname -m)-linux-gnu/openssl" "$2" ||
    fail "the packages to collect are libgtest-dev, nlohmann-json3-dev, libcli11-dev and libssl-dev"
  exit
fi

build=$root/build/gpu
nvidia-smi --query-gpu=name,memory.total --format=csv,noheader || say "there is no GPU"
if [[ ! -f $build/CMakeCache.txt ]] && command -v ninja >/dev/null; then export CMAKE_GENERATOR=Ninja; fi
cmake -S "$root" -B "$build" -DFSDP_CUDA=ON
cmake --build "$build" --parallel "$(jobs_of_build)" --target gpu_tests run_tests
FSDP_ROOT=$root exec "$build/bin/run_tests" "$build/bin/gpu_tests" --seconds "${FSDP_TEST_SECONDS:-500}"
