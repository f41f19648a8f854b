#!/usr/bin/env bash
# The cmake of a clone that fresh_clone.py tries: it configures the preset default once, and from
# then on copies what this has made, FRESH_CONFIGURED, because every line of the table begins
# without a build folder.
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
