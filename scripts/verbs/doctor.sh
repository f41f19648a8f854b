#!/usr/bin/env bash
#: doctor                          check compiler, LibTorch, memory, disk and GPU; print what to do
# Checks whether this machine has what the course needs. Prints a line for each item: "ok", "note"
# (the course works without it) or "wrong", with what to do. Exits with 1 if anything is wrong.
source "${BASH_SOURCE[0]%/*}/../verb.sh"
help_if_option "$@"
set +e  # a command that fails is shown in a line
broken=''

line() { printf '%-10s %-6s %s\n' "$1" "$2" "$3"; }
ok() { line "$1" ok "$2"; }
note() { line "$1" note "$2"; }
wrong() {
  line "$1" wrong "$2"
  printf '%-10s %-6s fix: %s\n' '' '' "$3"
  broken=yes
}

compiler_line() {
  local cxx version
  cxx=$(compiler)
  version=$("$cxx" --version 2>/dev/null | head -n 1)
  if [[ ! $version ]]; then
    wrong compiler "$cxx was not found" "./fsdp setup, or set CXX to g++ 11, clang 14 or newer"
  elif ! compiles_cpp20 "$cxx"; then
    wrong compiler "$version does not compile C++20" "set CXX to g++ 11, clang 14 or newer"
  else
    ok compiler "$version"
  fi
}

tools() {
  local tool missing=()
  for tool in cmake ninja; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  if ((${#missing[@]})); then
    wrong tools "missing: ${missing[*]}" "./fsdp setup"
    return
  fi
  ok tools "cmake $(cmake --version | sed -n '1s/[^0-9]*//p'), ninja $(ninja --version)"
  local packages
  packages=$(cmake -P "$root/cmake/missing.cmake" 2>/dev/null | grep -v '^libtorch ' | tr '\n' ' ')
  if [[ $packages ]]; then
    wrong libraries "missing: $packages" "./fsdp setup"
  else
    ok libraries "GoogleTest, nlohmann-json, CLI11, OpenSSL"
  fi
}

libtorch() {
  local where version
  where=$(sed -n 's/^LibTorch_ROOT:PATH=//p' "$root/build/default/CMakeCache.txt" 2>/dev/null)
  [[ -d $where ]] || where=$(libtorch_folder)
  if [[ ! $where ]]; then
    wrong libtorch "none was found" "./fsdp setup, or name the folder of yours in LIBTORCH"
    return
  fi
  version=$(sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' \
    "$where/include/torch/headeronly/version.h" \
    "$where/include/torch/csrc/api/include/torch/version.h" 2>/dev/null | head -n 3 | paste -sd .)
  if [[ $version == 2.1[1-5].* ]]; then
    ok libtorch "$version, $where"
  else
    wrong libtorch \
      "${version:-of unknown version}, $where; the course is tested with 2.11 to 2.15" \
      "unset LIBTORCH, remove build/, and run ./fsdp setup, which puts one into .venv"
  fi
}

memory() {
  local megabytes jobs cores text
  megabytes=$(free_megabytes)
  jobs=$(jobs_of_build)
  cores=$(nproc)
  if ((megabytes < megabytes_of_compiler)); then
    wrong memory "$megabytes MB are free; a compiler takes $megabytes_of_compiler MB" \
      "close other programs"
  elif ((jobs < cores)); then
    text="$megabytes MB are free: a build runs $jobs compilers at a time on $cores cores"
    note memory "$text, each of $megabytes_of_compiler MB"
  else
    ok memory "$megabytes MB are free, on $cores cores"
  fi
}

disk() {
  local megabytes need=6000
  [[ -d $root/build/default/bin ]] && need=1000
  megabytes=$(df -Pm "$root" | awk 'NR == 2 { print $4 }')
  if ((megabytes < need)); then
    wrong disk "$megabytes MB are free; LibTorch and the build take $need MB" \
      "free some space, or move the course"
  else
    ok disk "$megabytes MB are free"
  fi
}

gpu() {
  if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
    ok gpu "$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c |
      sed 's/^ *//' | tr '\n' ' ')"
  else
    note gpu "none was found; the course needs none"
  fi
}

build_state() {
  if [[ -x $root/build/default/bin/check ]]; then
    ok build "build/default exists"
  else
    note build "nothing is built yet: the first ./fsdp check takes some minutes"
  fi
}

compiler_line
tools
libtorch
memory
disk
gpu
build_state
[[ ! $broken ]]
