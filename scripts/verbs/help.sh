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

A verb first installs and builds what it needs. Name the folder of your own LibTorch in Torch_DIR,
CMAKE_PREFIX_PATH or LIBTORCH; a copy keeps the one that it was built with. Otherwise \
the torch of your
Python is used; if there is none, ./fsdp setup puts one into .venv. A build runs \
as many compilers as the
free memory allows. Programs and the log of each build are in build/.
END
if [[ -f $maintain ]]; then
  echo "./fsdp help --maintain prints what maintainers of the course run."
fi
