#!/usr/bin/env bash
# Gradescope runs this file once, as root, when it makes the image. It installs what the build
# needs, compiles the grader's own programs, and removes the read permission of files that graded
# code must not read.
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
# This grading of the blank tasks compiles the tests and the reference solutions, so that the
# gradings of students compile only the students' files.
./fsdp grade tasks --out /tmp/blank.json --seed first
# Graded code must not read these folders and the seed, so only root keeps the permission to read
# them. Without namespaces, graded code is compiled and run as another user. This user must be able
# to read the headers and the precompiled header; the programs are copied to folders that this user
# can read.
chmod go-rwx solutions grading tests ../seed
chmod go-r build build/default build/default/CMakeFiles
find build/default build/default/CMakeFiles -mindepth 1 -maxdepth 1 ! -name CMakeFiles \
  ! -name fsdp_memory.dir \
  -exec chmod go-rwx {} +
