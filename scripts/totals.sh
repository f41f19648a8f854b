# shellcheck shell=bash
# Counts what passed, failed and was skipped. Source this file after scripts/verb.sh. It makes the
# folder $work for temporary files, and in it the file $totals, for lines "passed failed skipped".
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
totals=$work/totals
touch "$totals"

# counted COMMAND...: runs a command that adds lines "passed failed skipped" to the file $totals
# itself. If the command fails and has added no failure, adds one failure to $totals.
counted() {
  local before
  before=$(failed_so_far)
  if ! "$@" && [[ $(failed_so_far) == "$before" ]]; then
    echo "$* broke off"
    echo 0 1 0 >>"$totals"
  fi
}
failed_so_far() { awk '{ sum += $2 } END { print sum + 0 }' "$totals"; }

# print_totals: adds up the test counts in the file $totals and prints how many tests passed, failed
# and were skipped. Its status is 1 if any test failed.
print_totals() {
  local passed failed skipped
  read -r passed failed skipped < <(
    awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' "$totals")
  echo "$passed passed, $failed failed, $skipped skipped"
  ((failed == 0))
}
