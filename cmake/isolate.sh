#!/usr/bin/env bash
# isolate.sh [--unguarded] OUT CALLER... -- OBJECT... -- LIBRARY...: links a student's objects into
# the single object OUT. CALLERs are the tests and all other code of the course in the program
# except common/; LIBRARIES are those of common/.
#
# Each task is isolated by itself. The folder of an OBJECT, such as task3_forward_hooks, names its
# task. Of the names that a task defines, code outside of it sees only those that CALLERs or the
# student's other tasks leave undefined and that neither CALLERs nor LIBRARIES define. So a helper
# may have any name: it replaces no function of the tests, of common/ or of another task, and no
# such function replaces it. If two tasks define a name that other code uses, the definition of the
# task whose header declares the name is used. If not exactly one header declares it, this script
# fails and names both files.
#
# Each function that scripts/look.sh lists as `stopped` is replaced by one that ends the rank with a
# message (common/base/refused_call.cpp), unless --unguarded is given.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
guarded=yes
if [[ $1 == --unguarded ]]; then
  guarded=
  shift
fi
out=$1
shift
export LC_ALL=C  # sort and comm must agree

# until_dashes NAME WORD...: reads the words up to -- into the array NAME. Sets `read` to the number
# of words that it has read, counting the --.
until_dashes() {
  local -n into=$1
  into=()
  shift
  while (($#)) && [[ $1 != -- ]]; do
    into+=("$1")
    shift
  done
  read=$((${#into[@]} + 1))
}
until_dashes callers "$@"
shift "$read"
until_dashes objects "$@"
shift "$read"
libraries=("$@")

defined() {
  nm --defined-only --extern-only --format=posix "$@" | awk 'NF > 2 { print $1 }' | sort -u
}
undefined() { nm --undefined-only --format=posix "$@" | awk 'NF > 1 { print $1 }' | sort -u; }
strong() {
  nm --defined-only --extern-only --format=posix "$@" | awk '$2 ~ /^[TDBR]$/ { print $1 }' | sort -u
}

# unique OBJECT...: prints the variables that the linker merges into one although several objects
# define them, such as inline variables.
unique() {
  nm --defined-only --extern-only --format=posix "$@" |
    awk '$2 == "u" || ($2 == "V" && $1 !~ /^_ZT[VTIS]/) { print $1 }' | sort -u
}

# of_libraries: reads names of variables from stdin, as unique() prints them. Prints those that
# belong to LibTorch or the C++ library and whose name contains no type of the student.
of_libraries() {
  local known='St|Sa|Ss|Si|So|Sd|2at|3c10|5torch|6caffe2|8nlohmann|9__gnu_cxx|10__cxxabiv1'
  awk -v known="N[KVRO]*($known)" '
    $0 ~ "^_Z(GV|TW|TH|GR)?Z*(" known "|St)" {
      rest = $0
      gsub(known, "", rest)
      if (rest !~ /N[KVRO]*[0-9]|I[KVROPJ]*[0-9]/) print
    }'
}

# declares TASK NAME: succeeds if a header of the task contains the name of the function NAME,
# without its namespaces and classes.
declares() {
  local word
  word=$(c++filt -p "$2")
  word=${word%%<*}
  grep -qsw -- "${word##*::}" "$root/tasks/$1"/*.h "$root/tasks/extensions/$1"/*.h
}

# files_of TASK NAME: prints the student's files of the task that define the symbol NAME.
files_of() {
  local object
  while IFS= read -r object; do
    if grep -qxF -- "$2" <(strong "$object"); then
      object=${object%.o}
      echo "tasks/${object##*/tasks/}"
    fi
  done <<<"${of_task[$1]}"
}

# choose NAME TASK...: each TASK defines the symbol NAME. Prints the task whose definition other
# code must use: the only one with a header that declares NAME. Fails with a message unless the
# headers of exactly one of the tasks declare it.
choose() {
  local name=$1 task declaring=()
  shift
  for task; do
    if declares "$task" "$name"; then declaring+=("$task"); fi
  done
  if ((${#declaring[@]} != 1)); then
    echo "isolate.sh: error: multiple definition of $(c++filt "$name"), which another task or a" \
      "test uses too: it is in $(for task; do files_of "$task" "$name"; done | paste -sd '+' |
        sed 's/+/ and in /g');" \
      "rename one of them, or make it static" >&2
    return 1
  fi
  echo "${declaring[0]}"
}

# guard LINKED OUT: finds the functions that the object LINKED uses and that must be replaced
# (look.sh --names), and prints a line "NAME REPLACEMENT" for each. The replacement of syscall() is
# fsdp_futex_alone(). guard writes the other replacements to OUT.s, in assembler; each one calls
# fsdp_refused_call() with the name of the function.
guard() {
  local name pass
  case $(uname -m) in
    aarch64) pass='adrp x0, 1f; add x0, x0, :lo12:1f; b fsdp_refused_call' ;;
    *) pass='leaq 1f(%rip), %rdi; jmp fsdp_refused_call@PLT' ;;
  esac
  echo ".section .note.GNU-stack,\"\"; .text" >"$2.s"
  "$root/scripts/look.sh" --names "$1" | while IFS= read -r name; do
    if [[ $name == syscall ]]; then
      echo "syscall fsdp_futex_alone"
      continue
    fi
    echo "$name fsdp_refused.${name//@/.}"
    printf 'fsdp_refused.%s: %s\n.section .rodata; 1: .asciz "%s"; .text\n' \
      "${name//@/.}" "$pass" "$(c++filt -p "${name%%@*}" | sed 's/[<(].*//; s/["\\]//g')" >>"$2.s"
    printf '.globl fsdp_refused.%s\n' "${name//@/.}" >>"$2.s"
  done
}

mkdir -p "${out%/*}"
work=$(mktemp -d "${out%/*}/isolate.XXXXXX")
trap 'rm -rf "$work"' EXIT
declare -A of_task=()
for object in "${objects[@]}"; do
  folder=${object%/*}
  folder=${folder##*/}
  of_task[$folder]+=${of_task[$folder]+$'\n'}$object
done
mapfile -t tasks < <(printf '%s\n' "${!of_task[@]}" | sort)

for task in "${tasks[@]}"; do
  # If objects of a program have equal section groups (such as the code of a template), the linker
  # keeps only one of the groups. --force-group-allocation turns groups into ordinary sections,
  # because each task needs its own copy after isolation has made the symbols local.
  mapfile -t of_it <<<"${of_task[$task]}"
  ld -r --force-group-allocation -o "$work/$task.linked" "${of_it[@]}"
  undefined "$work/$task.linked" >"$work/$task.undefined"
  strong "$work/$task.linked" >"$work/$task.strong"
done
defined "${callers[@]}" "${libraries[@]}" >"$work/given"
undefined "${callers[@]}" >"$work/callers.undefined"

for task in "${tasks[@]}"; do
  others=("$work/callers.undefined")
  for other in "${tasks[@]}"; do
    if [[ $other != "$task" ]]; then others+=("$work/$other.undefined"); fi
  done
  sort -u "${others[@]}" | comm -23 - "$work/given" |
    comm -12 - <(defined "$work/$task.linked") >"$work/$task.seen"
done
sort "$work"/*.strong | uniq -d | comm -12 - <(sort -u "$work"/*.seen) >"$work/twice"
while IFS= read -r name; do
  defining=()
  for task in "${tasks[@]}"; do
    if grep -qxF -- "$name" "$work/$task.strong"; then defining+=("$task"); fi
  done
  chosen=$(choose "$name" "${defining[@]}")
  for task in "${defining[@]}"; do
    if [[ $task != "$chosen" ]]; then echo "$name" >>"$work/$task.hidden"; fi
  done
done <"$work/twice"

isolated=()
unique "${libraries[@]}" >"$work/unique"
for task in "${tasks[@]}"; do
  linked=$work/$task.linked
  touch "$work/$task.hidden"
  # Variables of common/ and LibTorch that the linker merges must stay visible: as local symbols
  # they would be other variables than those of common/ or LibTorch.
  unique "$linked" >"$linked.unique"
  { comm -12 "$linked.unique" "$work/unique"; of_libraries <"$linked.unique"; } |
    sort -u >"$work/shared"
  {
    echo "# objcopy takes no empty list"
    cat "$work/shared"
    comm -23 "$work/$task.seen" <(sort -u "$work/$task.hidden")
  } >"$linked.visible"
  # The variables that unique() prints become weak symbols, so that the program uses one definition
  # of each. Other symbols stay strong, because the linker loads no object from an archive for a
  # weak undefined symbol. The variables must not have the symbol type "unique" any more: ld would
  # make such a symbol global again, even if objcopy has made it local.
  echo "# nor here" >>"$linked.unique"
  objcopy --weaken-symbols="$linked.unique" "$linked"
  if [[ $guarded ]]; then
    guard "$linked" "$work/$task.guards" >"$work/$task.names"
    echo "# nor here" >>"$work/$task.names"
    as "$work/$task.guards.s" -o "$work/$task.guards.o"
    objcopy --redefine-syms="$work/$task.names" "$linked"
    ld -r -o "$linked.guarded" "$linked" "$work/$task.guards.o"
    mv "$linked.guarded" "$linked"
  fi
  objcopy --keep-global-symbols="$linked.visible" "$linked" "$work/$task.o"
  isolated+=("$work/$task.o")
done
ld -r -o "$out" "${isolated[@]}"
