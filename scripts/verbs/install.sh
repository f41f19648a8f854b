#!/usr/bin/env bash
#: install [--preset NAME] PREFIX  install the library into PREFIX, for programs of your own; NAME:
#:                                 default, debug, cuda
source "${BASH_SOURCE[0]%/*}/../verb.sh"

help_if_asked "$@"

# Builds the library and installs it into PREFIX. Checks that PREFIX can be written before the build
# begins, because the build takes minutes.
install_library() {
  local preset rest prefix log
  take_preset install "$@"
  [[ $preset != ?san ]] ||
    refuse "install: --preset $preset is only for tests; allowed: default, debug, cuda"
  [[ ${#rest[@]} == 1 && ${rest[0]} ]] ||
    refuse "install needs one folder: the PREFIX to install into"
  prefix=${rest[0]}
  if ! mkdir -p "$prefix" 2>/dev/null || [[ ! -w $prefix ]]; then
    refuse "install: '$prefix' is no folder that can be written; name another one"
  fi
  prefix=$(cd "$prefix" && pwd)
  build "$preset" fsdp
  log=$root/build/$preset/install.log
  if ! cmake --install "$root/build/$preset" --prefix "$prefix" >"$log" 2>&1; then
    grep -A3 -m1 'CMake Error' "$log" >&2 || true
    fail "could not install into $prefix; the whole log: $log"
  fi
  say "installed in $prefix; a project finds it with -DCMAKE_PREFIX_PATH='$prefix' and" \
    "find_package(fsdp)"
}

install_library "$@"
