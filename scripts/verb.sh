# shellcheck shell=bash
# What the files of scripts/verbs/ begin with, one for each verb of ./fsdp. The lines of such a file
# that begin with "#: " are what ./fsdp help shows of the verb; so they, and no others, may have up
# to 110 columns.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"
bin=$root/build/default/bin

# Programs run in the caller's folder. They find the repository through FSDP_ROOT.
export FSDP_ROOT=$root

# Prints the verbs in the order of ./fsdp help: a new one is added here. A verb exists if its file
# does: a handout has no files of verbs that only maintainers need (grading/course/handout.py). It
# alone has update.
verbs() {
  local verb
  for verb in setup doctor build install test lint hello check hint reset appendix train \
    diff plan generate export plot replay inspect submit update handout site grade quiz gradescope \
    reproduce bench help; do
    if [[ -f $root/scripts/verbs/$verb.sh ]]; then echo "$verb"; fi
  done
}

# usage_of VERB...: prints what ./fsdp help shows of these verbs.
usage_of() {
  local verb
  printf 'usage: ./fsdp VERB [OPTION...]\n\n'
  for verb; do sed -n 's/^#: /  /p' "$root/scripts/verbs/$verb.sh"; done
}

asks_for_help() { [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; }

# help_if_asked ARGUMENT...: of a verb that is no program with a --help of its own. If help is the
# first argument, shows the usage of the verb, and ends.
help_if_asked() {
  [[ ${1-} == -h || ${1-} == --h* ]] || return 0
  usage_of "$(basename "$0" .sh)"
  exit
}

# help_if_option ARGUMENT...: the same, of a verb that has no options: any one asks for help.
help_if_option() { [[ ${1-} != -* ]] || help_if_asked --help; }

# value_of OPTION ARGUMENT...: prints the value of `--OPTION` among the arguments, or nothing.
value_of() {
  local option=--$1 argument
  shift
  while (($#)); do
    argument=$1
    shift
    case $argument in
      "$option") echo "${1-}" ;;
      "$option"=*) echo "${argument#*=}" ;;
    esac
  done
}

# run PROGRAM OPTION...: builds the program, and runs it in the place of this one.
run() {
  build default "$1"
  exec "$bin/$1" "${@:2}"
}

# python FILE OPTION...: runs a program of grading/ in the place of this one.
python() {
  need_python
  exec "$root/.venv/bin/python3" "$root/grading/$1" "${@:2}"
}

# take_preset VERB ARGUMENT...: sets `preset` to what --preset names, and `rest` to the other
# arguments.
take_preset() {
  local verb=$1
  shift
  preset=default
  if [[ ${1-} == --preset ]]; then
    preset=${2-}
    require_preset "$preset"
    shift 2
  fi
  [[ ${1-} != -* ]] || refuse "option '$1' is unknown to $verb; allowed: --preset NAME"
  rest=("$@")
}
