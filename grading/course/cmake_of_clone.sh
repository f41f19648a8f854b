#!/usr/bin/env bash
# This script takes the place of cmake in the clone that fresh_clone.py makes. The first call of
# `cmake --preset default` runs the real cmake, and this script keeps the resulting build folder in
# FRESH_CONFIGURED. Later calls copy FRESH_CONFIGURED, because fresh_clone.py removes build/ before
# most commands that it tries. Calls with other arguments run the real cmake.
set -euo pipefail
if [[ $PWD != "$FRESH_CLONE" || $* != "--preset default" ]]; then exec "$FRESH_CMAKE" "$@"; fi
if [[ ! -d $FRESH_CONFIGURED ]]; then
  "$FRESH_CMAKE" "$@"
  cp -a build/default "$FRESH_CONFIGURED.part"
  mv "$FRESH_CONFIGURED.part" "$FRESH_CONFIGURED"
else
  mkdir -p build/default
  cp -a "$FRESH_CONFIGURED/." build/default
fi
