# shellcheck shell=bash
# Selects the code that a verb of ./fsdp builds: for each task the course's solution or the
# student's own code. Source scripts/verb.sh before this file.

# stack_of TASK OPTION...: prints the name of the stack (cmake/stacks.cmake) whose code the tests of
# the task run. All scripts ask this function. The student's task is tested together with the
# reference solutions of the earlier tasks, from task 1 on, as far as this copy has them, and with
# the student's own code for the tasks after these. So `mine_on_3` has the solutions of tasks 1 to
# 3, and `mine` has none. Tasks 0 and 1 use no earlier task. The options --base and --solutions
# select other code.
stack_of() {
  local task=$1 solutions=0 base
  shift
  while compgen -G "$root/solutions/task$((solutions + 1))_*/*.cpp" >/dev/null; do
    ((++solutions))
  done
  base=$(value_of base "$@")
  if [[ ${FSDP_STACK-} ]]; then
    echo "$FSDP_STACK"  # for maintainers: a stack of cmake/maintainers.cmake
  elif [[ " $* " == *" --solutions "* ]]; then
    compgen -G "$root/solutions/task${task}_*/*.cpp" >/dev/null && ((task <= solutions)) ||
      refuse "--solutions: this copy has no solution of task $task"
    echo reference
  else
    if [[ $base == reference ]] && ((task > solutions + 1)); then
      refuse "--base reference: this copy has no solution of task $((solutions + 1)), on which" \
        "task $task stands"
    fi
    if [[ $base == mine ]]; then solutions=0; fi
    if ((task <= solutions)); then solutions=$((task > 0 ? task - 1 : 0)); fi
    echo "mine$( ((solutions == 0)) || echo "_on_$solutions")"
  fi
}

# is_blank TASK: succeeds if the student has not changed the task: the files of the task and of its
# extensions are byte for byte the delivered ones.
is_blank() {
  local file
  : "${pristine:=$(first_states)}"
  [[ $pristine ]] || return 1
  while read -r file; do
    cmp -s "$pristine/$file" "$root/tasks/$file" || return 1
  done < <(sources_of_task "$1" "$pristine" && sources_of_task "$1" "$root/tasks")
}

# Prints the name of the stack with which the student trains: `mine`, which has the student's own
# code of all tasks. If the student has not begun one of tasks 1 to 7, prints the stack that the
# tests of task 7 use, which has solutions in place of the student's earlier tasks, as far as this
# copy has them.
own_stack() {
  local task
  for task in 1 2 3 4 5 6 7; do
    if is_blank "$task"; then
      stack_of 7
      return
    fi
  done
  echo mine
}

# Prints the value that --stack has if it is not given: `reference`; but `mine` in a handout without
# the solution of task 7, because students train there with their own FSDP.
default_stack() {
  if [[ -d $root/solutions/task7_integration ]]; then echo reference; else echo mine; fi
}

# build_train OPTION...: builds the train program that these options of ./fsdp train need, and sets
# `program` to its path.
build_train() {
  local stack preset=default
  stack=$(value_of stack "$@")
  case ${stack:=$(default_stack)} in
    mine) stack=$(own_stack) ;;
    reference)
      [[ -d $root/solutions/task7_integration ]] ||
        refuse "--stack reference: its solutions are not here; allowed: mine"
      ;;
    *) refuse "--stack $stack is unknown; allowed: reference, mine" ;;
  esac
  if [[ $(value_of device "$@") == cuda ]]; then
    preset=cuda
    if ! asks_for_help "$@"; then require_gpu; fi
  fi
  build "$preset" "${stack}_train"
  # shellcheck disable=SC2034
  program=$root/build/$preset/bin/${stack}_train
}

# Exits with an error if the machine has no NVIDIA GPU. Called before a build with CUDA, which takes
# minutes.
require_gpu() {
  compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]] ||
    refuse "--device cuda needs an NVIDIA GPU and its driver, and this machine has none (there is" \
      "no /dev/nvidia0); leave out --device to train on the CPU"
}
