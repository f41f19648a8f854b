#!/usr/bin/env bash
#: hint PROBLEM [1|2|3]            print a hint: 1 a question, 2 the idea, 3 a pointer
# Prints the hint of one level, 1 to 3, from tasks/taskN_*/HINTS.md.
source "${BASH_SOURCE[0]%/*}/../verb.sh"
help_if_asked "$@"

problem=${1-} level=${2-1}
[[ $problem =~ ^[0-7]\.[1-9]$ ]] || refuse "hint needs a problem, as in: hint 3.2 or hint 3.2 2"
[[ $level =~ ^[1-3]$ ]] ||
  refuse "hint $problem $level: levels are 1 (a question), 2 (the idea), 3 (a pointer)"
file=$(compgen -G "$root/tasks/task${problem%.*}_*/HINTS.md") ||
  fail "tasks/task${problem%.*}_*/HINTS.md is missing"

text=$(awk -v problem="$problem" -v level="$level" '
  /^## / { inside = $2 == problem; at = 0; next }
  /^### / { at = $2; next }
  inside && at == level' "$file" | sed '/./,$!d')
[[ $text ]] || fail "there is no hint for problem $problem in ${file#"$root"/}"
printf '%s\n' "$text"
if ((level < 3)); then printf '\nMore: ./fsdp hint %s %d\n' "$problem" $((level + 1)); fi
