# shellcheck shell=bash
# Prints the errors of a failed build. Source scripts/build.sh before this file.

# show_errors TASK: prints that the task does not compile, and the first errors in the log of the
# build: names that two files define; if there are none, errors in tasks/; if there are none either,
# any errors.
show_errors() {
  local log=$root/build/default/build.log
  say_refused "task $1 does not compile"
  show_clashes "$log" || grep -E -m 3 -A 3 '^[^ ]*tasks/[^ ]*:[0-9]+:.*error' "$log" >&2 ||
    grep -E -m 3 -A 3 'error|undefined reference|multiple definition' "$log" >&2
}

# show_clashes LOG: prints which names two files of one program define, and in which files. Fails if
# there are no such names. Linkers report such names in these forms:
#   GNU ld  b.o: in function `f()':
#           (.text+0x0): multiple definition of `f()'; a.o:(.text+0x0): first defined here
#   gold    b.o: multiple definition of 'f()'
#           a.o: previous definition here
#   mold    duplicate symbol: a.o: b.o: f()
#   lld     duplicate symbol: f()
#           and two lines ">>> ... a.o"
show_clashes() {
  awk '
    function object(text,   found) {
      if (!match(text, /[^ :;(`]*\.(cpp|cc|cxx)\.o/)) return ""
      found = substr(text, RSTART, RLENGTH - 2)
      sub(/^.*\.dir\//, "", found)
      return found
    }
    function tell(name, one, other,   key) {
      key = name SUBSEP one SUBSEP other
      if (one == "" || other == "" || seen[key]++) return
      print name "\t" one "\t" other
    }
    /: in function `/ { second = object($0) }
    /multiple definition of/ {
      name = before = after = $0
      sub(/.*multiple definition of [`\047]/, "", name)
      sub(/\047;.*|\047$/, "", name)
      sub(/multiple definition of.*/, "", before)
      sub(/.*multiple definition of/, "", after)
      if (object(before)) second = object(before)
      tell(name, object(after), second)
    }
    /previous definition here/ { tell(name, object($0), second) }
    /duplicate symbol: .*\.o: .*\.o: / {
      split($0, part, /\.o: /)
      tell(part[3], object(part[1] ".o"), object(part[2] ".o"))
      next
    }
    /duplicate symbol: / { name = $0; sub(/.*duplicate symbol: /, "", name); first = "" }
    /^>>> .*\.o/ && first == "" { first = object($0); next }
    /^>>> .*\.o/ { tell(name, first, object($0)); first = "" }
    ' "$1" | {
    local name one other count=0
    while IFS=$'\t' read -r name one other && ((++count <= 3)); do
      say "$name is defined in $one and in $other, and both are in one program: give one of the" \
        "two another name, or put it into \"namespace { }\", which makes it the file's own"
    done
    ((count))
  }
}
