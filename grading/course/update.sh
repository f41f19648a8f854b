#!/usr/bin/env bash
#: update ARCHIVE                  unpack a later release of the course over this copy, but keep the tasks
#:                                 that you have begun, and tasks/WRITEUP.md
source "${BASH_SOURCE[0]%/*}/../verb.sh"
source "$root/scripts/stacks.sh"

help_if_option "$@"

# Unpacks the archive. Files that this copy's release delivered and that the later release lacks are
# removed, because the build uses every file that it finds. The student's files stay: tasks that are
# begun, tasks/WRITEUP.md, and all files that no release delivered.
update() {
  local task begun=() kept='tasks/WRITEUP\.md' before
  [[ -f ${1-} && $# == 1 ]] || refuse "update needs the archive of a later release"
  tar -tzf "$1" >/dev/null
  for task in 0 1 2 3 4 5 6 7; do
    if is_blank "$task"; then continue; fi
    begun+=(--exclude "*/tasks/task${task}_*.cpp" --exclude "*/tasks/extensions/task${task}_*.cpp")
    kept+="|tasks/(extensions/)?task${task}_.*\.cpp"
  done
  before=$(cat "$root/.pristine/delivered")
  tar -xzf "$1" -C "$root" --strip-components 1 --exclude '*/tasks/WRITEUP.md' \
    ${begun[@]+"${begun[@]}"}
  cd "$root" || exit
  LC_ALL=C comm -23 - .pristine/delivered <<<"$before" | { grep -vxE "$kept" || true; } |
    xargs -d '\n' rm -f
}

update "$@"
