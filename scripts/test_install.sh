#!/usr/bin/env bash
# test_install.sh [TOTALS [--all]]: tests the installed library from projects outside of this
# repository.
# - Installs the library, moves the installed folder, and builds the project examples/find_package
#   with it. In that build a warning is an error, also in the library's headers.
# - Runs the program of that project: one run is killed and continued. If ./fsdp setup --peers has
#   installed torchrun, the program also runs under torchrun.
# - Builds a project of one file that uses the library in each way that CMake has (find_package,
#   add_subdirectory, FetchContent), with g++ and clang, Debug and Release. The last two ways
#   compile the library again, so they run with every compiler and type only with --all; without
#   --all, only with g++ and Debug, and only if cmake/, examples/ or this file has changed.
# Adds a line "passed failed skipped" for each check to the file TOTALS.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
totals=$work/totals  # lines "passed failed skipped"
all=${2-}
ranks=4

# Installs the library into a folder, moves the folder, and builds the project examples/find_package
# with it. By default CMake hides warnings in headers of imported targets; with
# NO_SYSTEM_FROM_IMPORTED it shows them.
builds_elsewhere() {
  "$root/fsdp" install "$work/prefix" &&
    mv "$work/prefix" "$work/the prefix" &&
    cp -r "$root/examples/find_package" "$work/project" &&
    cmake -G Ninja -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/the prefix" \
      -DCMAKE_NO_SYSTEM_FROM_IMPORTED=ON &&
    cmake --build "$work/build" --parallel "$(jobs_of_build)"
}

# Configures the project examples/find_package with a folder that looks like a LibTorch of another
# version than the one with which the library was built. Succeeds if CMake fails with an error that
# names the folder and its version.
refuses_another_libtorch() {
  local other=$work/libtorch api=include/torch/csrc/api/include/torch said
  mkdir -p "$other/lib" "$other/$api" &&
    touch "$other/lib/"lib{torch_cpu,c10}.so "$other/$api/torch.h"
  printf '#define TORCH_VERSION_%s\n' 'MAJOR 1' 'MINOR 2' 'PATCH 3' >"$other/$api/version.h"
  said=$(cmake -S "$work/project" -B "$work/other" -DCMAKE_PREFIX_PATH="$work/the prefix" \
    -DLIBTORCH="$other" 2>&1) && { echo "it was taken: $said"; return 1; }
  tr -s ' \n' ' ' <<<"$said" | grep -qF "but $other has 1.2.3: name the folder" ||
    { echo "$said"; return 1; }
}

outside() { "$work/build/outside" "$@"; }
hash_of() { sed -n 's/^hash //p' <<<"$1"; }
same() {
  [[ $1 && $1 == "$2" ]] || { echo "'$1' is not '$2'"; return 1; }
}

# Kills a run of the installed example program after the run has saved its first checkpoint, and
# continues the run from its last checkpoint. It does not matter at which step the signal arrives:
# the continued run and an uninterrupted run both end seven steps after the last checkpoint, and
# must print the same hash of their states.
goes_on_after_a_kill() {
  local line process last resumed whole
  exec {output}< <(exec "$work/build/outside" "$ranks" 1000000 "$work/killed")
  process=$!
  while read -r line <&"$output" && [[ $line != saved* ]]; do :; done
  kill -KILL "$process" || { echo "it has ended by itself: $line"; return 1; }
  cat <&"$output" >/dev/null  # until the last rank has ended
  exec {output}<&-
  last=$(outside "$ranks" 0 "$work/killed" | sed -n 's/^continues after step //p')
  [[ $last ]] || { echo "it has left no checkpoint"; return 1; }
  resumed=$(outside "$ranks" $((last + 7)) "$work/killed") || return 1
  whole=$(outside "$ranks" $((last + 7)) "$work/whole") || return 1
  grep -qx "continues after step $last" <<<"$resumed" &&
    same "$(hash_of "$resumed")" "$(hash_of "$whole")"
}

# Runs the example program with FSDP and with DDP, each on two and on four ranks. All four runs add
# the gradients of four microbatches in the same order, so their results must be equal. Buffers may
# differ, because a run saves those of its rank 0.
is_one_training_with_either_class() {
  local run first='' said ranks_of_run steps class
  for run in '2 7' '4 7' '2 7 ddp' '4 7 ddp'; do
    read -r ranks_of_run steps class <<<"$run"
    said=$(outside "$ranks_of_run" "$steps" "$work/run $run" ${class:+"$class"}) || return 1
    said=$(sed -n 's/^without buffers //p' <<<"$said")
    same "${first:=$said}" "$said" || return 1
  done
  said=$(outside 4 14 "$work/run 4 7" ddp) && first=$(outside 4 14 "$work/run 4 7 ddp") || return 1
  same "$(hash_of "$said")" "$(hash_of "$first")"
}

# torchrun runs with --standalone, because it then uses a free port; its default port may be in use.
torchrun() {
  "$root/.venv-peers/bin/torchrun" --standalone --no-python --nproc-per-node "$ranks" "$@"
}

outside_in_torchrun() {
  local started alone
  started=$(torchrun "$work/build/outside" "$ranks" 7 "$work/started") || return 1
  alone=$(outside "$ranks" 7 "$work/alone") || return 1
  same "$(hash_of "$started")" "$(hash_of "$alone")"
}

train_in_torchrun() {
  local options=(--mode fsdp --world "$ranks" --model gpt2-tiny --steps 3)
  local hash='"state_sha256":"[^"]*"'
  torchrun "$root/fsdp" train "${options[@]}" --json "$work/started.json" || return 1
  "$root/fsdp" train "${options[@]}" --json "$work/alone.json" || return 1
  same "$(grep -o "$hash" "$work/started.json")" "$(grep -o "$hash" "$work/alone.json")"
}

# takes_it_by WAY COMPILER TYPE [OPTION...]: builds and runs a project that uses the library. To
# find clashes of names, the project has a target and headers whose names this repository has too.
# The two ways that compile the library (add_subdirectory, FetchContent) share a build folder, so
# that they compile it once.
takes_it_by() {
  local way project=$root/build/outside/project build=$root/build/outside/$2-$3 said
  case $1 in
    find_package) way='find_package(fsdp REQUIRED)' build=$work/$2-$3 ;;
    add_subdirectory) way="add_subdirectory(\"$root\" _deps/fsdp-build)" ;;
    FetchContent)
      way="FetchContent_Declare(fsdp SOURCE_DIR \"$root\")"
      way+=$'\nFetchContent_MakeAvailable(fsdp)'
      ;;
  esac
  mkdir -p "$project/nn" "$work/run"
  echo '#error "taken for a header of fsdp"' | tee "$project/state_dict.h" >"$project/nn/module.h"
  cat >"$project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(other CXX)
set(CMAKE_NO_SYSTEM_FROM_IMPORTED ON)
include(FetchContent)
$way
add_executable(check "$root/examples/own_training.cpp")
target_include_directories(check PRIVATE .)
target_compile_options(check PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(check PRIVATE fsdp::fsdp)
END
  cmake -G Ninja -S "$project" -B "$build" -DCMAKE_CXX_COMPILER="$2" -DCMAKE_BUILD_TYPE="$3" \
    -DCMAKE_PREFIX_PATH="$work/the prefix" "${@:4}" &&
    cmake --build "$build" --parallel "$(jobs_of_build)" && said=$("$build/check" "$work/run") ||
    return 1
  rm -r "$work/run"
  same "$(cat "$work/said" 2>/dev/null || tee "$work/said" <<<"$said")" "$said"
}

# Compiles and runs the block of docs/library.md that includes <fsdp/fsdp.h> and has a line "...".
# The lines before "..." are put before main(), the lines after it into main().
compiles_the_snippet_of_the_page() {
  local project=$work/snippet block
  block=$(awk '
    /^```cpp/ { block = ""; inside = 1; next }
    /^```/ { if (block ~ /fsdp\/fsdp\.h/ && block ~ /\n\.\.\.\n/) printf "%s", block; inside = 0 }
    inside { block = block $0 "\n" }' "$root/docs/library.md")
  [[ $block == *AdamW* ]] || { echo "docs/library.md shows no such block"; return 1; }
  mkdir "$project"
  cat >"$project/main.cpp" <<END
${block%%...*}
using namespace fsdp;

struct Net : Module {
  Net() { linear = register_module("linear", torch::nn::Linear(4, 4)); }
  torch::Tensor forward(torch::Tensor x) override { return linear(x); }
  torch::nn::Linear linear{nullptr};
};

int main() {
  return start(1, [](const RankContext& context) {
    const auto comm = Communicator::create(context);
    Net net;
    const auto x = torch::ones({2, 4});
    const auto loss = [](const torch::Tensor& y) { return y.square().mean(); };
${block#*...}
    return 0;
  });
}
END
  cat >"$project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(snippet CXX)
find_package(fsdp REQUIRED)
add_executable(snippet main.cpp)
target_link_libraries(snippet PRIVATE fsdp::fsdp)
END
  cmake -G Ninja -S "$project" -B "$project/build" -DCMAKE_PREFIX_PATH="$work/the prefix" &&
    cmake --build "$project/build" && (cd "$project" && build/snippet)
}

check "a project elsewhere builds" builds_elsewhere
check "the snippet of docs/library.md compiles and runs" compiles_the_snippet_of_the_page
if [[ -x $work/build/outside ]]; then
  check "another LibTorch is refused" refuses_another_libtorch
  check "it is killed and goes on" goes_on_after_a_kill
  check "it is one training with FSDP and with DDP, on two ranks and on four" \
    is_one_training_with_either_class
  if [[ -x $root/.venv-peers/bin/torchrun ]]; then
    check "it computes the same in torchrun" outside_in_torchrun
    check "train computes the same in torchrun" train_in_torchrun
  else
    echo "in torchrun: skipped, there is no .venv-peers; ./fsdp setup --peers makes it"
    echo 0 0 2 >>"$totals"
  fi
fi

# wants_to_compile COMPILER TYPE: succeeds if add_subdirectory and FetchContent, which compile the
# library, must be tested with this compiler and build type.
wants_to_compile() {
  [[ $all ]] || { [[ "$1 $2" == "g++ Debug" ]] &&
    changed_since_base | grep -qE '^(CMake|cmake/|examples/|scripts/test_install.sh$)'; }
}

for compiler in g++ clang++; do
  command -v "$compiler" >/dev/null || continue
  for type in Debug Release; do
    check "find_package, $compiler, $type" takes_it_by find_package "$compiler" "$type"
    wants_to_compile "$compiler" "$type" || continue
    for way in add_subdirectory FetchContent; do
      check "$way, $compiler, $type" takes_it_by "$way" "$compiler" "$type" \
        "-DCMAKE_CXX_FLAGS_${type^^}=-O0"
    done
  done
done
check "with -static-libstdc++" takes_it_by find_package g++ Release \
  -DCMAKE_EXE_LINKER_FLAGS=-static-libstdc++

if [[ ${1-} ]]; then cat "$totals" >>"$1"; fi
! grep -q '^0 1' "$totals"
