# shellcheck shell=bash
# Finds the files of the course that a student has changed. Source scripts/build.sh before this
# file.

# changed_files: prints, one per line, the files that the student has changed, removed or added, if
# they decide how tests are built and run. It leaves out the files that students write: the .cpp
# files of the tasks, and new headers in tasks/.
changed_files() {
  local decides=(CMakeLists.txt CMakePresets.json cmake common course.toml programs scripts/look.sh
    solutions tests trainer)
  cd "$root" || return
  if [[ -f .pristine/hashes ]]; then
    sha256sum --check --quiet .pristine/hashes 2>/dev/null | sed -n 's/: FAILED.*//p' || true
    find "${decides[@]}" -type f '(' -name '*.h' -o -name '*.cpp' ')' 2>/dev/null | LC_ALL=C sort |
      LC_ALL=C comm -23 - .pristine/delivered
  elif [[ ! -d .pristine ]]; then
    {
      git diff --name-only HEAD -- "${decides[@]}" ':(glob)tasks/**/*.h'
      git ls-files --others --exclude-standard -- "${decides[@]}"
    } 2>/dev/null || true
  fi
}

# say_changed: prints which files of the course the student has changed. The grader uses its own
# copies of these files, so a test that passes here may fail there.
say_changed() {
  local file restore changed
  mapfile -t changed < <(changed_files)
  for file in "${changed[@]:0:3}"; do
    restore="unpack the course again over this copy, with ./fsdp update ARCHIVE"
    if [[ ! -d $root/.pristine ]]; then
      restore="git checkout HEAD -- $file"
      git -C "$root" cat-file -e "HEAD:$file" 2>/dev/null || restore="remove it"
    elif [[ -f $root/.pristine/${file#tasks/} ]]; then
      restore="cp .pristine/${file#tasks/} $file"
    elif ! grep -qxF "$file" "$root/.pristine/delivered"; then
      restore="remove it, or move it into the folder of your task"
    fi
    say "$file is not as the course delivered it; the grader uses its own, so your points there" \
      "may differ: $restore"
  done
  if ((${#changed[@]} > 3)); then say "... and $((${#changed[@]} - 3)) more files of the course"; fi
}
