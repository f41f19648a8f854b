# shellcheck shell=bash
# Runs several verbs of ./fsdp and adds up the counts in their last lines. Set `root` and the shell
# option pipefail, then source this file.

# summed "VERB OPTION..."...: runs the verbs one after another, and shows what they print. Each verb
# ends with a line "N passed, N failed, N skipped"; summed leaves these lines out, and prints their
# sum as the last line. Fails if a verb fails. A verb that ends without such a line counts as one
# more failure.
summed() {
  local command words said failed=0 status=0 sum=(0 0 0) number='([0-9]+)'
  said=$(mktemp)
  for command; do
    read -ra words <<<"$command"
    # sed does not show the verb's last line, which has its counts: only the sum of all counts is
    # printed, at the end.
    if ! "$root/fsdp" "${words[@]}" </dev/null | tee "$said" | sed -u '$d'; then
      failed=1 status=1
    fi
    if [[ $(tail -n 1 "$said") =~ ^$number\ passed,\ $number\ failed,\ $number\ skipped$ ]]; then
      ((sum[0] += BASH_REMATCH[1], sum[1] += BASH_REMATCH[2], sum[2] += BASH_REMATCH[3])) || true
      if ((failed && BASH_REMATCH[2] == 0)); then ((++sum[1])); fi
    else
      tail -n 1 "$said"
      echo "./fsdp $command broke off"
      ((++sum[1]))
      status=1
    fi
    failed=0
  done
  rm -f "$said"
  if ((sum[1])); then status=1; fi
  echo "${sum[0]} passed, ${sum[1]} failed, ${sum[2]} skipped"
  return $status
}
