#!/usr/bin/env bash
#: help                            print this text
source "${BASH_SOURCE[0]%/*}/../verb.sh"

maintain=$root/scripts/maintain.txt  # not in a handout
if [[ ${1-} == --maintain && -f $maintain ]]; then
  cat "$maintain"
  exit
fi
mapfile -t all < <(verbs)
usage_of "${all[@]}"
cat <<END

A verb first installs and builds what it needs. To use your own LibTorch, name its folder in \
Torch_DIR,
CMAKE_PREFIX_PATH or LIBTORCH; a copy keeps the LibTorch that it was built with. Otherwise it uses \
the torch
of your Python; if there is none, ./fsdp setup installs one into .venv. A build runs as many \
compilers as
the free memory allows. Programs and the log of each build are in build/.
END
if [[ -f $maintain ]]; then
  echo "./fsdp help --maintain prints the commands for maintainers of the course."
fi
