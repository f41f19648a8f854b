#!/usr/bin/env bash
# rules.sh [TOTALS]: checks the rules of this repository that no compiler checks. Each rule is one
# check. Adds a line "passed failed skipped" for each rule to the file TOTALS, and fails if a rule
# is broken.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/build.sh"

cd "$root" || exit 1
totals=${1:-/dev/null}
broken=''
mapfile -t files < <(repository_files)
mapfile -t cpp < <(sources)

# Each of the following functions checks one rule: it prints the files, lines or names that break
# the rule, one per line.
wrong_includes() { grep -nE '^ *# *include *["<]\.\./' /dev/null "${cpp[@]}"; }
repeated_names() {
  printf '%s\n' "${cpp[@]}" | sed -n 's|^\(solutions\|tasks\)/.*/\(.*\.h\)$|\2|p' | sort | uniq -d
}
# cmake/pch.h is exempt: a precompiled header is compiled as a main file, in which #pragma once
# causes a warning.
unguarded_headers() {
  printf '%s\n' "${cpp[@]}" | grep '\.h$' | grep -v '/pch\.h$' |
    xargs -d '\n' grep -L '^#pragma once'
}
stray_python() { printf '%s\n' "${files[@]}" | grep '\.\(py\|ipynb\)$' | grep -v '^grading/'; }
# The reference solutions must be short enough to read in one sitting: at most 1500 lines. Code that
# only extension problems need is in solutions/extensions/ and does not count.
long_reference() {
  cat solutions/task[1-7]*/*.{h,cpp} | awk -v most=1500 'END {
    if (NR > most)
      printf "solutions/task1 to task7 have %d lines together; at most %d\n", NR, most }'
}
# Finds lines of over 100 columns in scripts, Python and CMake files. The lines that ./fsdp help
# prints ("#: ") are exempt. TOML files, which quote lines of sources, and texts such as Markdown,
# which may have 110 columns, are not checked here.
long_lines() {
  printf '%s\n' "${files[@]}" |
    grep -E '(^|/)(fsdp|run|run_autograder|CMakeLists.txt|[^/]*\.(sh|py|cmake|cmake\.in))$' |
    LC_ALL=C.UTF-8 xargs -d '\n' grep -nE '^.{101}' /dev/null | grep -v ':#: '
}
large_files() { find "${files[@]}" -maxdepth 0 -type f -size +1000000c; }
# The warning SC2154 of shellcheck (a variable is not assigned) is off, because sourced scripts use
# variables that the sourcing script has set.
broken_scripts() {
  .venv/bin/shellcheck -f gcc -S warning -e SC2154 fsdp .ci/run \
    {cmake,scripts,scripts/verbs,grading/course,grading/gradescope}/*.sh
}
broken_python() { .venv/bin/ruff check --quiet --select F,E9 --output-format concise grading; }

# Finds file names that two files under tests/ have, in different folders. The name of a test file
# must be unique, because it says what the file tests.
repeated_test_files() { printf '%s\n' "${files[@]}" | sed -n 's|^tests/.*/||p' | sort | uniq -d; }
# Prints a line "FILE SUITE" for each GoogleTest suite in each test file.
suites_of_files() {
  local test='\w*TEST(_\w+)?\(\s*\w+(?=,\s*(DISABLED_)?[a-z]\w+\s*[,)])'
  grep -rzoP --include='*.cpp' "$test" tests | tr '\n\0' ' \n' | sed -E 's/:.*\(\s*/ /' | sort -u
}
# Finds suites that have tests in two files. ./fsdp check shows the failures of a suite in the order
# of the tests in its file; with two files, the order would depend on the linker.
torn_suites() { suites_of_files | awk '{ print $2 }' | sort | uniq -d; }
# Finds test files that have only one suite and another name than this suite: the suite RankExit
# must be in test_rank_exit.cpp. Tests of tasks are exempt, because their suites are named after
# problems.
misnamed_test_files() {
  suites_of_files | grep -v '^tests/task' |
    sed -E ':again; s/([a-z0-9])([A-Z])([^ ]*)$/\1_\2\3/; t again
            :twice; s/([A-Z])([A-Z][a-z][^ ]*)$/\1_\2/; t twice' |
    awk '{ ++suites[$1]; suite[$1] = tolower($2) }
         END {
           for (file in suites)
             if (suites[file] == 1 && file !~ "/test_" suite[file] "\\.cpp$")
               print file " has only the suite " suite[file]
         }' | sort
}

# Finds assertions in code that ranks run. A rank must only observe values, and the test's own
# process compares them, because the student's code runs in the rank's process and could change what
# is asserted there.
asserts_in_ranks() {
  awk '{ match($0, /^ */) }
       inside && NF && RLENGTH <= indent { inside = 0 }
       inside && /(EXPECT|ASSERT)_|FAIL\(|ADD_FAILURE/ { print FILENAME ":" FNR ": " $0 }
       /(run|try)_ranks\(|run_oracle\(/ { inside = 1; indent = RLENGTH }
    ' tests/task[0-7]*/* tests/extensions/*
}

# grading NAME OPTION...: runs the Python program grading/NAME.py with the options. The program
# checks a rule, and prints what is wrong.
grading() { .venv/bin/python3 "grading/$1.py" "${@:2}" 2>&1 || true; }

# Finds suites of the tests of tasks, such as T2_3_unshard, that course.toml does not list; and
# suites that course.toml lists, but that no test file has.
unlisted_suites() {
  diff <(grep -ohE 'T[0-7]_[0-9]_[a-z0-9_]+' course.toml | sort -u) \
    <(grep -rohE '(TEST|MULTI_RANK_SUITE(_ON)?)\([A-Za-z0-9_]+' tests/task* |
      sed 's/.*(//' | sort -u) |
    sed -n 's/^< \(.*\)/\1 has no test/p; s/^> \(.*\)/\1 is not in course.toml/p'
}
# odd_test_names: prints the GoogleTest tests whose names are not in snake_case.
odd_test_names() {
  grep -rzoP 'TEST(_[PF])?\(\s*\w+,\s*\w+' tests | tr '\n\0' ' \n' |
    grep -vE ', *(DISABLED_)?[a-z0-9]+(_[a-z0-9]+)*$'
}
# python_tests: runs the Python tests under grading/ and prints their failures.
python_tests() {
  local folder said
  for folder in grading grading/course grading/peers; do
    said=$(.venv/bin/python3 -m unittest discover -s "$folder" 2>&1 >/dev/null) ||
      tail -n 20 <<<"$said"
  done
}
# The first C++ example in docs/library.md must equal examples/own_model.cpp, and the one in
# docs/checkpoints.md must equal the code in test_library_checkpoint.cpp between the comments that
# say that this code begins and ends. Prints the differences.
stale_example() {
  diff <(sed -n '/^```cpp$/,/^```$/{p;/^```$/q}' docs/checkpoints.md | sed '1d;$d') \
    <(sed -n '/begins the code that docs.checkpoints.md/,/ends the code/p' \
      tests/library/test_library_checkpoint.cpp | sed '1d;$d;s/^  //')
  diff <(sed -n '/^```cpp$/,/^```$/{p;/^```$/q}' docs/library.md | sed '1d;$d') \
    examples/own_model.cpp
}

# rule NAME COMMAND...: runs the command, which checks one rule. The rule holds if the command
# prints nothing.
rule() {
  local places
  places=$("${@:2}")
  if [[ -z $places ]]; then
    printf '%-36s passed\n' "$1"
    echo 1 0 0 >>"$totals"
  else
    printf '%-36s failed\n%s\n' "$1" "$(sed 's/^/    /' <<<"$places")"
    echo 0 1 0 >>"$totals"
    broken=yes
  fi
}

rule "no ../ in includes" wrong_includes
rule "header names are unique" repeated_names
rule "headers have #pragma once" unguarded_headers
rule "the reference is short" long_reference
rule "Python in grading/ only" stray_python
rule "files of at most 1 MB" large_files
rule "lines of at most 100 columns" long_lines
rule "shell scripts are sound" broken_scripts
rule "Python is sound" broken_python
rule "course.toml lists every suite" unlisted_suites
rule "names of test files are unique" repeated_test_files
rule "a suite lies in one file" torn_suites
rule "a file of one suite has its name" misnamed_test_files
rule "test names are snake_case" odd_test_names
rule "tests of tasks assert outside of ranks" asserts_in_ranks
rule "the fault bank fits the code" grading faults --check
rule "layers include what they may" grading course/layers
rule "rooms have their doors" grading course/rooms
rule "examples are compiled" stale_example
rule "texts agree with what they name" grading course/texts
rule "shown output can be made" grading course/samples --check
rule "Python's own tests" python_tests

[[ ! $broken ]]
