#!/usr/bin/env bash
#: reset TASK                      restore the first state of a task and its extensions; keep yours in
#:                                 .backup/
# Restores the delivered files of tasks/taskN_*/ and tasks/extensions/taskN_*/, in which no function
# is written. The present files are kept in .backup/.
source "${BASH_SOURCE[0]%/*}/../verb.sh"
help_if_asked "$@"

[[ ${1-} =~ ^[0-7]$ && $# == 1 ]] || refuse "reset needs the number of a task, 0 to 7"
folder=$(cd "$root" && compgen -G "tasks/task$1_*") || fail "there is no task $1 under tasks/"
task=$(basename "$folder")

pristine=$(first_states) || fail ".pristine/ is missing: unpack the handout again"

same=yes
while read -r file; do
  cmp -s "$pristine/$file" "$root/tasks/$file" || same=''
done < <(sources_of_task "$1" "$pristine")
if [[ $same ]]; then
  say "$folder is in its first state; nothing to do"
  exit 0
fi
for ((number = 1; ; ++number)); do
  backup=.backup/$task-$number
  [[ -e $root/$backup ]] || break
done
mkdir -p "$root/$backup"
cp -a "$root/$folder/." "$root/$backup"
if [[ -d $root/tasks/extensions/$task ]]; then cp -a "$root/tasks/extensions/$task" \
  "$root/$backup/extensions"; fi
sources_of_task "$1" "$pristine" | while read -r file; do
  mkdir -p "$root/tasks/$(dirname "$file")"
  cp "$pristine/$file" "$root/tasks/$file"
done
say "$folder is in its first state again; your files are kept in $backup"
