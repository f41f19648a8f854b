# shellcheck shell=bash
# Shell functions that the other scripts share; to be sourced, with `root` set.

say() { echo "fsdp: $*" >&2; }

# For what costs points: submit repeats it.
say_refused() {
  say "$*"
  echo "$*" >>"${FSDP_REFUSED:-/dev/null}"
}

# Ends with the status of a wrong command line.
refuse() {
  say "$*"
  exit 2
}

fail() {
  say "$*"
  exit 1
}

# Configures build/PRESET if it is missing, or again if the environment names another LibTorch.
# (Ninja itself notices changed sources.) A build whose LibTorch was named, in a terminal that names
# none any more, keeps this LibTorch.
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
  if ! (cd "$root" && cmake --preset "$preset" ${options[@]+"${options[@]}"}) \
    >"$dir/configure.log" 2>&1; then
    grep -A6 -m3 'CMake Error' "$dir/configure.log" >&2 || tail -n 20 "$dir/configure.log" >&2
    fail "could not configure build/$preset; the whole log: $dir/configure.log"
  fi
  echo "$named" >"$dir/named"
}

# Builds targets of a preset, and prints a line only if there is something to build. If the build
# fails, shows the first errors and fails; with `quiet` set it shows none, and returns 3 if nothing
# was compiled because the build could not be configured, which is shown. Where nothing can be
# written, it is enough that the targets are current.
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
    # Two commands at a time would overwrite each other's files. Silent under torchrun, whose ranks
    # queue here as a matter of course.
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

# Prints the bytes of memory that are free, in MB: of the machine or, if that is less, of the
# container.
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

# Prints how many compilers a build runs at a time: one on each core, as far as the free memory has
# room for them, but at least one.
megabytes_of_compiler=1300
jobs_of_build() {
  local cores room
  cores=$(nproc)
  room=$(($(free_megabytes) / megabytes_of_compiler))
  echo $((room < 1 ? 1 : room < cores ? room : cores))
}

# counted_steps STEPS JOBS: prints "7 steps"; with the reason, if memory allows fewer jobs than
# there are cores.
counted_steps() {
  local what="$1 steps"
  if (($1 == 1)); then what="1 step"; fi
  if (($2 < $1 && $2 < $(nproc))); then
    what+=", $2 at a time, because $(free_megabytes) MB of memory are free and a compiler takes"
    what+=" $megabytes_of_compiler"
  fi
  echo "$what"
}

# say_warnings LOG: says how many warnings a build gave, each one once, and shows the first, if
# possible of a student's file.
say_warnings() {
  local warnings count first
  warnings=$(grep 'warning:' "$1" | awk '!seen[$0]++' | sed "s|$root/||g") || return 0
  [[ $warnings ]] || return 0
  count=$(wc -l <<<"$warnings")
  if ((count == 1)); then count="1 warning"; else count+=" warnings"; fi
  first=$(grep -m 1 '^tasks/' <<<"$warnings") || first=$(head -n 1 <<<"$warnings")
  say "$count in ${1#"$root/"}; first: $first"
}

# holder LOCK: prints which command has the lock: " (process 4711: ./fsdp check)"; nothing if that
# is not known.
holder() {
  local process
  process=$(head -n 1 "$1")
  [[ $process && -r /proc/$process/cmdline ]] || return 0
  echo " (process $process: $(tr '\0' ' ' <"/proc/$process/cmdline" | sed 's/ $//'))"
}

# touch_old_files DIR: ninja goes by the times of files, but what comes out of an archive or a
# backup may be older than what was made of the file before it. Touches such files: those that do
# not hold what they held before the last build, by the list DIR/contents, and are older than this
# list. (Ninja sees the newer ones by itself.) Then writes the list anew.
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

# is_current DIR TARGET...: whether the targets are newer than all that they are made from. Changes
# nothing, so another build may be running; new files of a folder are not looked for.
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

# Makes .venv if it is missing: the scripts of grading/ run with its Python.
need_python() { [[ -x $root/.venv/bin/python3 ]] || "$root/scripts/verbs/setup.sh" --python-only; }

# Prints the folder that holds the folders of the tasks as they were delivered. A handout has it; of
# the course's own repository it is the last commit.
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

# sources_of_task TASK FOLDER: prints the paths of the task's C++ files in a folder of the form of
# tasks/, one per line, with those of its extensions.
sources_of_task() (
  cd "$2" || exit 1
  shopt -s nullglob
  printf '%s\n' {,extensions/}task"$1"_*/*.{h,cpp}
)

# steps_to_build DIR TARGET...: prints how many steps ninja would take; nothing if there are none.
# A dry run of build.ninja itself shows only the step that looks for new files. So that step is done
# first, and the dry run reads a copy.
steps_to_build() {
  local dir=$1
  shift
  ninja -C "$dir" build.ninja >/dev/null 2>&1 || true
  cp "$dir/build.ninja" "$dir/dry_run.ninja"
  ninja -C "$dir" -f dry_run.ninja -n "$@" 2>/dev/null | sed -n 's|^\[[0-9]*/\([0-9]*\)\].*|\1|p' |
    tail -n 1
}

# Copies ninja's output into a file. On a terminal, shows the count of steps in one line.
progress() {
  if [[ -t 2 ]]; then
    tee "$1" | awk '/^\[[0-9]+\/[0-9]+\]/ { printf "\r%s ", $1; shown = 1; fflush() }
                    END { if (shown) printf "\r            \r" }' >&2
  else
    cat >"$1"
  fi
}

# Prints the repository's files, one per line, from its root: files that git knows and new files,
# but no ignored ones.
repository_files() (
  cd "$root" || exit
  if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -co --exclude-standard --deduplicate
  else
    find . -type f -not -path './build/*' -not -path './.venv*' -not -path './.cache/*' | cut -c 3-
  fi | while read -r file; do if [[ -f $file ]]; then echo "$file"; fi; done
)

# Prints the commit that changes are counted from: the one at which the branch left origin/main or,
# on main itself, the last but one; of a first commit, that commit. Fails without git.
base_of_changes() (
  cd "$root" && git rev-parse --git-dir >/dev/null 2>&1 || return
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  if [[ -z $base || $base == "$(git rev-parse HEAD)" ]]; then
    base=$(git rev-parse --verify --quiet HEAD~1 || echo HEAD)
  fi
  echo "$base"
)

# Prints the files that have changed since then, also those that are not committed; nothing without
# git.
changed_since_base() (
  base=$(base_of_changes) && cd "$root" || return 0
  git diff --name-only --diff-filter=d "$base"
  git ls-files -o --exclude-standard
)

sources() { repository_files | grep '\.\(cpp\|h\)$'; }

# Prints the folder of the LibTorch that this copy was built with, if it is still there.
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

# Prints the folder of the LibTorch that a build would use.
libtorch_folder() {
  cmake -DLibTorch_BUILT_WITH="$(built_with)" -P "$root/cmake/missing.cmake" 2>/dev/null |
    sed -n 's/^libtorch //p'
}

compiles_cpp20() {
  printf '#include <concepts>\n#include <span>\nauto f = []<std::integral T>(T) {};' |
    "${CXX:-c++}" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null
}

# Refuses what is no preset.
require_preset() {
  case ${1-} in
    default | debug | cuda | asan | tsan) ;;
    *) refuse "--preset '${1-}' is unknown; allowed: default, debug, cuda, asan, tsan" ;;
  esac
}

# Finds the program $2 of the pinned wheel $1, so that every machine runs the same version.
tool() { compgen -G "$root/.venv/lib/python3*/site-packages/$1/data/bin/$2"; }

# check NAME COMMAND...: runs the command as one check, which passes if the command does. Adds to
# the file `totals`, and shows what a command that fails has said; the folder `work` is for that.
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
