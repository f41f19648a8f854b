# shellcheck shell=bash
# Shell functions that the other scripts share. Set `root` to the repository's folder, then source
# this file.

say() { echo "fsdp: $*" >&2; }

# Prints a message about something that costs a student points, and appends it to the file that the
# environment variable FSDP_REFUSED names. ./fsdp submit, which sets FSDP_REFUSED, prints the
# messages again at its end.
say_refused() {
  say "$*"
  echo "$*" >>"${FSDP_REFUSED:-/dev/null}"
}

# refuse MESSAGE...: prints the message and exits with 2, the status of a wrong command line.
refuse() {
  say "$*"
  exit 2
}

fail() {
  say "$*"
  exit 1
}

# configure PRESET: configures build/PRESET with CMake if that folder is missing, and again if the
# environment names another LibTorch. (For changed sources this is not needed: Ninja notices them.)
# If the environment named a LibTorch for the last build and names none now, the build keeps its
# LibTorch.
configure() {
  local preset=$1 dir="$root/build/$1"
  local named=${Torch_DIR-}:${CMAKE_PREFIX_PATH-}:${LIBTORCH-} options=() libtorch
  if [[ -f $dir/CMakeCache.txt ]]; then
    local home
    home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$dir/CMakeCache.txt")
    libtorch=$(sed -n 's/^LibTorch_ROOT:PATH=//p' "$dir/CMakeCache.txt")
    if [[ ! $root -ef $home ]]; then
      say "build/$preset belongs to $home: building anew"
      rm -rf "${dir:?}"/* "$dir"/.ninja*
    elif [[ -f $dir/build.ninja && -d $libtorch &&
      $(cat "$dir/named" 2>/dev/null) == "$named" ]]; then
      return
    elif [[ -f $dir/build.ninja && -d $libtorch && $named == :: ]]; then
      say "LIBTORCH is not set any more: build/$preset keeps the LibTorch that it was built with," \
        "$libtorch; remove build/ to use another one"
      echo "$named" >"$dir/named"
      return
    else
      options=(-U 'LibTorch_*')
    fi
  fi
  libtorch=$(built_with)
  if [[ $named == :: && $libtorch ]]; then options+=("-DLibTorch_BUILT_WITH=$libtorch"); fi
  "$root/scripts/verbs/setup.sh" --build-only || exit 1
  mkdir -p "$dir"
  if ! (cd "$root" &&
    CXX=$(compiler "$preset") cmake --preset "$preset" ${options[@]+"${options[@]}"}) \
    >"$dir/configure.log" 2>&1; then
    grep -A6 -m3 'CMake Error' "$dir/configure.log" >&2 || tail -n 20 "$dir/configure.log" >&2
    fail "could not configure build/$preset; the whole log: $dir/configure.log"
  fi
  echo "$named" >"$dir/named"
}

# build PRESET TARGET...: builds the targets, and prints a line only if there is something to build.
# - If the build fails, prints the first errors and exits with 1. With `quiet` set it does not print
#   them and returns 1.
# - If the build can't be configured, prints that error and exits with 1; with `quiet` set it
#   returns 3.
# - If the build folder can't be written, succeeds only if the targets are already up to date.
build() {
  local preset=$1 dir="$root/build/$1" targets=("${@:2}") what steps jobs
  mkdir -p "$dir" 2>/dev/null ||
    fail "build/$preset can't be made; copy this folder to where you can write"
  if [[ ! -w $dir ]]; then
    is_current "$dir" "${targets[@]}" ||
      fail "build/$preset can't be written, and does not hold ${targets[*]} as this folder's" \
        "sources are; copy this folder to where you can write"
    return
  fi
  (
    trap 'say interrupted; trap - INT; kill -INT "$BASHPID"' INT
    # Only one command at a time may build, because two would overwrite each other's files. Under
    # torchrun (RANK is set) every rank waits for this lock, so this function prints no message
    # there.
    if ! flock --nonblock 9; then
      if is_current "$dir" "${targets[@]}"; then exit 0; fi
      [[ -n ${RANK-} ]] || say "waiting for another build to end$(holder "$dir/lock")"
      flock 9
    fi
    echo $$ >"$dir/lock"
    if ! (configure "$preset"); then
      [[ ! ${quiet-} ]] || exit 3
      exit 1
    fi
    touch_old_files "$dir"
    steps=$(steps_to_build "$dir" "${targets[@]}")
    what=${targets[*]}
    if ((${#what} > 50)); then what="${#targets[@]} targets"; fi
    jobs=$(jobs_of_build)
    if [[ -n $steps ]]; then
      say "building $what in build/$preset: $(counted_steps "$steps" "$jobs")"
    fi
    if ! ninja -C "$dir" -j "$jobs" "${targets[@]}" 2>&1 | progress "$dir/build.log"; then
      [[ ! ${quiet-} ]] || exit 1
      grep -m 5 -A 4 -E 'error|FAILED|undefined reference' "$dir/build.log" >&2 ||
        tail -n 20 "$dir/build.log" >&2
      fail "the build failed; the whole log: $dir/build.log"
    fi
    say_warnings "$dir/build.log"
  ) 9<>"$dir/lock" || return
}

# Prints the free memory in MB: that of the machine or, if it is less, that of the container.
free_megabytes() {
  awk -v group="$(sed -n 's/^0:://p' /proc/self/cgroup 2>/dev/null)" '
    function number(file,   line) {
      if ((getline line < file) <= 0) line = "max"
      close(file)
      return line
    }
    /^MemAvailable/ { free = $2 * 1024 }
    END {
      for (;;) {
        folder = "/sys/fs/cgroup" group
        limit = number(folder "/memory.max")
        if (limit != "max") {
          left = limit - number(folder "/memory.current")
          while ((getline line < (folder "/memory.stat")) > 0)
            if (line ~ /^inactive_file /) left += substr(line, 15)
          if (left < free) free = left
        }
        if (group == "" || group == "/") break
        sub(/\/[^\/]*$/, "", group)
      }
      printf "%d\n", free / 1e6
    }' /proc/meminfo
}

# jobs_of_build: prints how many compilers a build runs at the same time: one for each core, or
# fewer if the free memory is not enough for them, but at least one.
megabytes_of_compiler=1700
jobs_of_build() {
  local cores room
  cores=$(nproc)
  room=$(($(free_megabytes) / megabytes_of_compiler))
  echo $((room < 1 ? 1 : room < cores ? room : cores))
}

# counted_steps STEPS JOBS: prints the number of steps of a build, "7 steps". If there are fewer
# jobs than cores because memory is short, also prints this reason.
counted_steps() {
  local what="$1 steps"
  if (($1 == 1)); then what="1 step"; fi
  if (($2 < $1 && $2 < $(nproc))); then
    what+=", $2 at a time, because $(free_megabytes) MB of memory are free and a compiler takes"
    what+=" $megabytes_of_compiler"
  fi
  echo "$what"
}

# say_warnings LOG: prints how many different warnings a build printed, and one of them: the first
# warning of a file in tasks/ or, if there is none, the first warning.
say_warnings() {
  local warnings count first
  warnings=$(grep 'warning:' "$1" | awk '!seen[$0]++' | sed "s|$root/||g") || return 0
  [[ $warnings ]] || return 0
  count=$(wc -l <<<"$warnings")
  if ((count == 1)); then count="1 warning"; else count+=" warnings"; fi
  first=$(grep -m 1 '^tasks/' <<<"$warnings") || first=$(head -n 1 <<<"$warnings")
  say "$count in ${1#"$root/"}; first: $first"
}

# holder LOCK: prints which process holds the lock of a build, " (process 4711: ./fsdp check)", or
# nothing if that is not known.
holder() {
  local process
  process=$(head -n 1 "$1")
  [[ $process && -r /proc/$process/cmdline ]] || return 0
  echo " (process $process: $(tr '\0' ' ' <"/proc/$process/cmdline" | sed 's/ $//'))"
}

# touch_old_files DIR: makes ninja notice changed source files that have an old time. Ninja compares
# times, but a file from an archive or a backup can be older than the object that was built from the
# file that it replaces. DIR is the build folder; DIR/contents lists the hash of each source file at
# the last build. This function touches the files whose hash is not in the list and which are older
# than the list (ninja notices newer files without this), and then writes the list again.
touch_old_files() {
  local list=$1/contents file
  (cd "$root" && find CMakeLists.txt appendix cmake common examples grading library programs \
    solutions tasks tests trainer -type f -exec sha256sum {} + 2>/dev/null |
      LC_ALL=C sort) >"$list.new"
  if [[ -f $list ]]; then
    LC_ALL=C comm -13 "$list" "$list.new" | while read -r _ file; do
      [[ $root/$file -nt $list ]] || touch "$root/$file"
    done
  fi
  mv "$list.new" "$list"
}

# is_current DIR TARGET...: succeeds if, in the build folder DIR, the targets are newer than
# everything that they are made from. It changes nothing, so another build may run at the same time.
# It does not look for new source files.
is_current() {
  local dir=$1 copy
  copy=$(mktemp) || return 1
  shift
  cp "$dir/build.ninja" "$copy" 2>/dev/null
  ninja -C "$dir" -f "$copy" -n "$@" 2>/dev/null | grep -q '^ninja: no work to do'
  local status=$?
  rm -f "$copy"
  return $status
}

# Makes the virtual environment .venv if it is missing. The scripts of grading/ run with the Python
# of .venv.
need_python() { [[ -x $root/.venv/bin/python3 ]] || "$root/scripts/verbs/setup.sh" --python-only; }

# Prints the path of the folder that has the tasks as they were delivered. In a handout this is the
# folder .pristine. In the course's own repository, this function makes a folder in build/ with the
# tasks of the last commit.
first_states() {
  if [[ -d $root/.pristine ]]; then
    echo "$root/.pristine"
  else
    local folder=$root/build/first_state
    rm -rf "$folder" && mkdir -p "$folder" &&
      git -C "$root" archive HEAD tasks 2>/dev/null | tar -x -C "$folder" 2>/dev/null &&
      echo "$folder/tasks"
  fi
}

# sources_of_task TASK FOLDER: prints the paths of the C++ files of the task and of its extensions,
# one per line. FOLDER has the same structure as tasks/.
sources_of_task() (
  cd "$2" || exit 1
  shopt -s nullglob
  printf '%s\n' {,extensions/}task"$1"_*/*.{h,cpp}
)

# steps_to_build DIR TARGET...: prints how many steps ninja would run in the build folder DIR to
# build the targets; nothing if there are none. A dry run of build.ninja shows only the step that
# looks for new files. So this function first runs that step, and then makes the dry run with a copy
# of build.ninja.
steps_to_build() {
  local dir=$1
  shift
  ninja -C "$dir" build.ninja >/dev/null 2>&1 || true
  cp "$dir/build.ninja" "$dir/dry_run.ninja"
  ninja -C "$dir" -f dry_run.ninja -n "$@" 2>/dev/null | sed -n 's|^\[[0-9]*/\([0-9]*\)\].*|\1|p' |
    tail -n 1
}

# progress FILE: copies stdin, which is ninja's output, into the file. If stderr is a terminal, also
# shows there, in one line, how many steps of the build have ended.
progress() {
  if [[ -t 2 ]]; then
    tee "$1" | awk '/^\[[0-9]+\/[0-9]+\]/ { printf "\r%s ", $1; shown = 1; fflush() }
                    END { if (shown) printf "\r            \r" }' >&2
  else
    cat >"$1"
  fi
}

# Prints the repository's files, one per line, as paths from its root: the files that git tracks and
# the new ones, but not those that git ignores.
repository_files() (
  cd "$root" || exit
  if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -co --exclude-standard --deduplicate
  else
    find . -type f -not -path './build/*' -not -path './.venv*' -not -path './.cache/*' | cut -c 3-
  fi | while read -r file; do if [[ -f $file ]]; then echo "$file"; fi; done
)

# Prints the commit with which changes are compared: the commit at which the branch left
# origin/main; on main itself, the parent of HEAD; if HEAD has no parent, HEAD. Fails without git.
base_of_changes() (
  cd "$root" && git rev-parse --git-dir >/dev/null 2>&1 || return
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  if [[ -z $base || $base == "$(git rev-parse HEAD)" ]]; then
    base=$(git rev-parse --verify --quiet HEAD~1 || echo HEAD)
  fi
  echo "$base"
)

# Prints the existing files that differ from the commit of base_of_changes or are new, whether the
# changes are committed or not; prints nothing without git.
changed_since_base() (
  base=$(base_of_changes) && cd "$root" || return 0
  git diff --name-only --diff-filter=d "$base"
  git ls-files -o --exclude-standard
)

sources() { repository_files | grep '\.\(cpp\|h\)$'; }

# Prints the folder of the LibTorch with which this copy of the repository was built, if that folder
# still exists.
built_with() {
  local preset cache libtorch
  for preset in default debug cuda asan tsan; do
    cache=$root/build/$preset/CMakeCache.txt
    [[ -f $cache && $root -ef $(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache") ]] ||
      continue
    libtorch=$(sed -n 's/^LibTorch_ROOT:PATH=//p' "$cache")
    if [[ -d $libtorch ]]; then
      echo "$libtorch"
      return
    fi
  done
}

# libtorch_folder: prints the path of the LibTorch that a build would use.
libtorch_folder() {
  cmake -DLibTorch_BUILT_WITH="$(built_with)" -P "$root/cmake/missing.cmake" 2>/dev/null |
    sed -n 's/^libtorch //p'
}

# compiles_cpp20 COMPILER: succeeds if the compiler exists and is new enough to compile C++20.
compiles_cpp20() {
  printf '#include <concepts>\n#include <span>\nauto f = []<std::integral T>(T) {};' |
    "$1" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null
}

# compiler [PRESET]: prints the C++ compiler with which a new folder build/PRESET is configured:
# $CXX if it is set; else clang++ if this machine has it, because it compiles LibTorch's headers in
# about half the time of g++; else c++. The presets cuda, asan and tsan use c++, because clang's
# package does not bring the libraries of its sanitizers, and CUDA was tried with g++ only.
compiler() {
  case ${1:-default} in
    default | debug)
      if [[ ! ${CXX-} ]] && compiles_cpp20 clang++; then
        echo clang++
        return
      fi
      ;;
  esac
  echo "${CXX:-c++}"
}

# require_preset NAME: exits with an error unless NAME is a preset: default, debug, cuda, asan or
# tsan.
require_preset() {
  case ${1-} in
    default | debug | cuda | asan | tsan) ;;
    *) refuse "--preset '${1-}' is unknown; allowed: default, debug, cuda, asan, tsan" ;;
  esac
}

# tool WHEEL PROGRAM: prints the path of a program that a Python wheel has installed in .venv. The
# wheel's version is pinned, so every machine runs the same version of the program.
tool() { compgen -G "$root/.venv/lib/python3*/site-packages/$1/data/bin/$2"; }

# check NAME COMMAND...: runs the command as one check, which passes if the command succeeds. Prints
# a line with the name and the result, and adds "1 0 0" (passed) or "0 1 0" (failed) to the file
# $totals. If the command fails, prints its output. The folder $work is for temporary files.
check() {
  local name=$1 result=passed start=$SECONDS
  shift
  "$@" >"$work/check" 2>&1 || result=failed
  printf '%-36s %s  %d s\n' "$name" "$result" $((SECONDS - start))
  if [[ $result == passed ]]; then
    echo 1 0 0 >>"$totals"
  else
    sed 's/^/    /' "$work/check"
    echo 0 1 0 >>"$totals"
  fi
}
