#!/usr/bin/env bash
# Compares appendix/README.md with the programs: the lines quoted after "<!-- lines of
# appendix/NAME.cpp -->" with the program's lines, and the block after "<!-- output of
# appendix/NAME.cpp -->" with the output of build/default/bin/appendix_NAME. Builds nothing. Prints the
# differences, and fails if there are any.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readme=$root/appendix/README.md
broken=''

# Prints the first fenced block after the line $1; fails if there is none.
block_after() {
  awk -v marker="$1" '
    inside && /^```/ { exit }
    inside { print }
    $0 == marker { found = 1 }
    found && /^```/ { inside = 1 }
    END { exit !inside }' "$readme"
}

# Prints the lines of block $1 that are not in file $2 in this order; "..." stands for any lines.
not_quoted_from() {
  awk '
    { gsub(/^ +| +$/, "") }
    FNR == NR { line[++count] = $0; next }
    $0 == "" || $0 == "..." { next }
    {
      for (i = at + 1; i <= count && line[i] != $0; ++i) {}
      if (i <= count) at = i
      else print "    not in the program, or not in this order: " $0
    }' "$2" <(printf '%s\n' "$1")
}

# Prints the differences for program $1, one per line.
differences() {
  local name=$1 program=$root/build/default/bin/appendix_$1 quoted shown printed status
  quoted=$(block_after "<!-- lines of appendix/$name.cpp -->") || echo "    the README quotes no line of it"
  not_quoted_from "$quoted" "$root/appendix/$name.cpp"
  if ! shown=$(block_after "<!-- output of appendix/$name.cpp -->"); then
    echo "    the README has no block after <!-- output of appendix/$name.cpp -->"
  elif [[ ! -x $program ]]; then
    echo "    $program is missing: run ./fsdp build appendix_programs"
  else
    printed=$("$program" 2>&1)
    status=$?
    if ((status)); then echo "    it ended with exit status $status"; fi
    diff -u --label README --label program <(echo "$shown") <(echo "$printed") | sed 's/^/    /'
  fi
}

for source in "$root"/appendix/*.cpp; do
  name=$(basename "$source" .cpp)
  places=$(differences "$name")
  if [[ $places ]]; then
    printf '%-36s failed\n%s\n' "appendix/$name.cpp" "$places"
    broken=yes
  else
    printf '%-36s passed\n' "appendix/$name.cpp"
  fi
done

[[ ! $broken ]]
