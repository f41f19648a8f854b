#!/usr/bin/env bash
# Takes the place of cmake in a clone of fresh_clone.py. It configures the preset default once, and
# afterwards copies the result, FRESH_CONFIGURED, because every line of the table begins without a
# build folder.
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
