#!/usr/bin/env bash
#: check [TASK|PROBLEM] [OPTION..] run the tests of tasks/ and print the points; see check --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"
source "$root/scripts/stacks.sh"
source "$root/scripts/changed_files.sh"
source "$root/scripts/look_at_task.sh"
source "$root/scripts/build_errors.sh"

# check_tasks ARGUMENT...: does what ./fsdp check does. Builds all needed test programs before the
# first test runs, because tests have time limits. A task whose files are still as delivered is "not
# started": nothing is built for it. If a task does not compile, prints its first errors and tests
# the other tasks.
check_tasks() {
  local what='0 1 2 3 4 5 6 7' asked task stack failed=0
  local stacks=() targets=(check) blank=() broken=() rejected=()
  local option options=(--stop-hanging)
  for option in stacks blank broken rejected; do
    [[ ! $(value_of "$option" "$@") ]] ||
      refuse "check: leave out --$option, which ./fsdp check gives by itself"
  done
  if asks_for_help "$@"; then
    what=''
  elif asked=$(what_of "$@") && [[ $asked ]]; then
    grep -qxF -e "number = $asked" -e "number = \"$asked\"" "$root/course.toml" ||
      refuse "check: there is no task or problem '$asked'; tasks are 0 to 7, problems are named" \
        "as in 3.2"
    what=${asked:0:1}
  fi
  for task in 0 1 2 3 4 5 6 7; do
    stack=-
    if [[ $what == *$task* ]]; then
      stack=$(stack_of "$task" "$@")
      if [[ $stack == mine* ]] && is_blank "$task"; then
        blank+=("$task")
      else
        targets+=("${stack}_task${task}_tests")
      fi
      if [[ $stack == mine* && $what == ? ]]; then announce "$task"; fi
    fi
    stacks+=("$stack")
  done
  if [[ " ${stacks[*]}" == *" mine"* ]]; then say_changed; fi
  quiet=yes build default "${targets[@]}" || failed=$?
  ((failed != 3)) || exit 1
  if ((failed)); then
    for task in $what; do
      [[ " ${targets[*]} " == *"_task${task}_tests "* ]] || continue
      if ((${#targets[@]} == 2)) ||
        ! quiet=yes build default "${stacks[task]}_task${task}_tests"; then
        broken+=("$task")
        show_errors "$task"
      fi
    done
    build default check
  fi
  for task in $what; do
    [[ ${stacks[task]} != mine* || " ${blank[*]} ${broken[*]} " == *" $task "* ]] ||
      look "$task" "${stacks[task]}" || rejected+=("$task")
  done
  if ((${#rejected[@]})); then options+=(--rejected "$(IFS=,; echo "${rejected[*]}")"); fi
  if ((${#blank[@]})); then options+=(--blank "$(IFS=,; echo "${blank[*]}")"); fi
  if ((${#broken[@]})); then options+=(--broken "$(IFS=,; echo "${broken[*]}")"); fi
  exec "$bin/check" "$@" ${options[@]+"${options[@]}"} --stacks "$(IFS=,; echo "${stacks[*]}")"
}

# what_of ARGUMENT...: prints the task or problem that the arguments of ./fsdp check name: the first
# argument that is neither an option nor the value of one.
what_of() {
  while (($#)); do
    case $1 in
      --solutions | --*=*) ;;
      -*) shift ;;
      *) echo "$1"; return ;;
    esac
    shift || return 0
  done
}

# announce TASK: prints how many functions of the task the student has not written yet, if there are
# any. Functions of extensions in tasks/extensions/ do not count.
announce() {
  local left
  left=$(cat "$root"/tasks/task"$1"_*/*.cpp | grep -c '^  todo("' || true)
  if ((left)); then
    say "task $1: functions that you have not written yet: $left; tests that need them are" \
      '"not started"'
  fi
}

check_tasks "$@"
