#!/usr/bin/env bash
# isolate.sh [--unguarded] OUT CALLER... -- OBJECT... -- LIBRARY...: links a student's objects into
# the one object OUT. CALLERs are the tests and all else of the course that the program has besides;
# LIBRARIES are those of common/.
#
# Each task is isolated by itself: the folder of an OBJECT, as task3_forward_hooks, says to which
# task it belongs. Others see of a task only the names that CALLERs or the student's other tasks
# leave undefined and that neither CALLERs nor LIBRARIES define. So a helper may have any name: it
# takes the place of no function of the tests, of common/ or of another task, and none takes its
# place. If two tasks define a name that others use, the task counts whose header declares it; if
# there is no such task, this fails and names both.
#
# A function that scripts/look.sh calls `stopped` is replaced by one that ends the rank with a
# message (common/base/refused_call.cpp), unless the option --unguarded is there.
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

# until_dashes NAME WORD...: reads words into the array NAME up to --, and counts what it has read
# in `read`.
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

# Variables of which a program has one, as inline ones.
unique() {
  nm --defined-only --extern-only --format=posix "$@" |
    awk '$2 == "u" || ($2 == "V" && $1 !~ /^_ZT[VTIS]/) { print $1 }' | sort -u
}

# Of such variables those of LibTorch or the C++ library, and of no type of the student's.
of_libraries() {
  local known='St|Sa|Ss|Si|So|Sd|2at|3c10|5torch|6caffe2|8nlohmann|9__gnu_cxx|10__cxxabiv1'
  awk -v known="N[KVRO]*($known)" '
    $0 ~ "^_Z(GV|TW|TH|GR)?Z*(" known "|St)" {
      rest = $0
      gsub(known, "", rest)
      if (rest !~ /N[KVRO]*[0-9]|I[KVROPJ]*[0-9]/) print
    }'
}

# declares TASK NAME: whether a header of the task has the last word of the function's name.
declares() {
  local word
  word=$(c++filt -p "$2")
  word=${word%%<*}
  grep -qsw -- "${word##*::}" "$root/tasks/$1"/*.h "$root/tasks/extensions/$1"/*.h
}

# files_of TASK NAME: the student's file of the task that defines the name.
files_of() {
  local object
  while IFS= read -r object; do
    if grep -qxF -- "$2" <(strong "$object"); then
      object=${object%.o}
      echo "tasks/${object##*/tasks/}"
    fi
  done <<<"${of_task[$1]}"
}

# choose NAME TASK...: prints the one of the tasks that others see the name of.
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

# guard LINKED OUT: prints each undefined name that is replaced, with the name of what replaces it,
# and writes those functions to OUT.s. They pass on which function was called.
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
  # Without groups of sections: the linker drops a group that another object has too, and with it
  # what is visible no more.
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
  # A copy of a variable that common/ or LibTorch has too would be another variable.
  unique "$linked" >"$linked.unique"
  { comm -12 "$linked.unique" "$work/unique"; of_libraries <"$linked.unique"; } |
    sort -u >"$work/shared"
  {
    echo "# objcopy takes no empty list"
    cat "$work/shared"
    comm -23 "$work/$task.seen" <(sort -u "$work/$task.hidden")
  } >"$linked.visible"
  # Those are weak: the program takes one of each. (No other names: a weak one that is undefined
  # would take no object out of an archive.) A unique one that was made local would be global again
  # after the next ld.
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
