# shellcheck shell=bash
# Finds what the grader would reject in a task. Source scripts/build.sh before this file.

# look TASK STACK: inspects the objects that STACK has compiled from the student's files of the
# task, as the grader does (look.sh). Prints what the grader would reject, and the calls at which a
# rank would be ended. Fails if the task would get no points. (If only an extension is rejected,
# only the points of the extensions are lost, and look succeeds.)
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

# place_of FILE TEXT: finds the first line, in the source file FILE or in a header of its folder,
# that contains one of the names in TEXT ("uses std::ofstream, fork: ..."). Prints the place of this
# line as FILE:LINE; prints FILE if no line contains such a name.
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
