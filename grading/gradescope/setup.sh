#!/usr/bin/env bash
# Gradescope runs this once, as root, when it makes the image: installs what the build needs,
# compiles the grader's own programs, and closes what graded code must not read.
set -euo pipefail
cd "${AUTOGRADER:-/autograder}/source"

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends ca-certificates binutils bubblewrap libseccomp2 lld \
  python3 python3-venv util-linux
mkdir -p fsdp
tar xzf fsdp.tar.gz -C fsdp
cd fsdp
./fsdp setup --build-only
# The first grade compiles the tests and the reference; later ones compile what a student has
# written.
./fsdp grade tasks --out /tmp/blank.json --seed first
# Nobody else comes past these folders. Without namespaces, graded code is compiled and run as
# another user, who reads the headers and the precompiled one; programs are handed over open.
chmod go-rwx solutions grading tests ../seed
chmod go-r build build/default build/default/CMakeFiles
find build/default build/default/CMakeFiles -mindepth 1 -maxdepth 1 ! -name CMakeFiles \
  ! -name fsdp_memory.dir \
  -exec chmod go-rwx {} +
