# shellcheck shell=bash
# Finds what the grader would reject in a task. Needs scripts/build.sh.

# look TASK STACK: inspects the compiled files of the task as the grader does. Prints what the
# grader would reject, and which calls end a rank. Fails if the task would get no points; a rejected
# extension costs only the extensions' points.
look() {
  local folder=$root/build/default/CMakeFiles/$2_task$1.dir
  local objects=() source kind file text status=0
  for source in "$root"/tasks/{,extensions/}task"$1"_*/*.cpp; do
    if [[ -f $folder/${source#"$root/"}.o ]]; then objects+=("$folder/${source#"$root/"}.o"); fi
  done
  ((${#objects[@]})) || return 0
  while IFS=$'\t' read -r kind file text; do
    if [[ $kind == stopped ]]; then
      say "$(place_of "$file" "$text") $text"
      continue
    fi
    say_refused "$(place_of "$file" "$text") $text"
    case $file in
      tasks/extensions/*) say_refused "so task $1 would be graded without its extensions" ;;
      *) status=1 ;;
    esac
  done < <("$root/scripts/look.sh" "${objects[@]}" | grep -v '^remark')
  return $status
}

# place_of FILE TEXT: prints FILE:LINE, the first line of the file or of a header in its folder that
# contains a name of TEXT ("uses std::ofstream, fork: ..."). Prints FILE if no line contains one.
place_of() {
  local file=$1 names line
  names=$(sed 's/^uses //; s/: .*//; s/ and more$//; s/, /\n/g; s/ or /\n/g' <<<"$2" |
    sed 's/.*:://' | paste -sd '|')
  line=$(cd "$root" && awk -v names="$names" '
    /^ *(\/\/|#include)/ { next }
    match(" " $0 " ", "[^A-Za-z0-9_](" names ")[^A-Za-z0-9_]") { print FILENAME ":" FNR; exit }
    ' "$file" "${file%/*}"/*.h 2>/dev/null) || true
  if [[ $line && ${line%:*} != "$file" ]]; then line="$line, included by $file,"; fi
  echo "${line:-$file}"
}
