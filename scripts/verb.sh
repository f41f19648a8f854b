# shellcheck shell=bash
# Every file of scripts/verbs/ is a verb of ./fsdp, and sources this file first. ./fsdp help shows
# those lines of a verb's file that begin with "#: ". Only these lines may have up to 110 columns.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"
bin=$root/build/default/bin

# The programs of the verbs run in the caller's working folder. They find the repository through the
# environment variable FSDP_ROOT.
export FSDP_ROOT=$root

# Prints the verbs in the order of ./fsdp help; add a new verb here. A verb exists if its file
# exists: a handout has no files of verbs that only maintainers need (grading/course/handout.py),
# and only a handout has update.
verbs() {
  local verb
  for verb in setup doctor build install test lint hello check hint reset appendix train \
    diff audit plan tokenize generate export plot replay why inspect leaderboard submit update \
    handout site grade quiz gradescope reproduce bench help; do
    if [[ -f $root/scripts/verbs/$verb.sh ]]; then echo "$verb"; fi
  done
}

# usage_of VERB...: prints the lines that ./fsdp help shows for these verbs.
usage_of() {
  local verb
  printf 'usage: ./fsdp VERB [OPTION...]\n\n'
  for verb; do sed -n 's/^#: /  /p' "$root/scripts/verbs/$verb.sh"; done
}

asks_for_help() { [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; }

# help_if_asked ARGUMENT...: if the first argument asks for help, prints the usage of the verb and
# exits. It is for verbs that do not run a program with a --help of its own.
help_if_asked() {
  [[ ${1-} == -h || ${1-} == --h* ]] || return 0
  usage_of "$(basename "$0" .sh)"
  exit
}

# help_if_option ARGUMENT...: if the first argument is any option, prints the usage of the verb and
# exits. It is for verbs that have no options.
help_if_option() { [[ ${1-} != -* ]] || help_if_asked --help; }

# value_of OPTION ARGUMENT...: prints the value that `--OPTION` has among the arguments; prints
# nothing if it is not among them.
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

# run PROGRAM OPTION...: builds a program of this repository, and replaces this shell process by the
# program, with the options.
run() {
  build default "$1"
  exec "$bin/$1" "${@:2}"
}

# python FILE OPTION...: replaces this shell process by the Python program grading/FILE.
python() {
  need_python
  exec "$root/.venv/bin/python3" "$root/grading/$1" "${@:2}"
}

# take_preset VERB ARGUMENT...: sets `preset` to the value of --preset, or to "default" without that
# option, and sets `rest` to the other arguments.
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
