# Reads the list of a test program's tests (--gtest_list_tests) and then its output, and prints one
# line per suite and the output of every test that did not pass. Variables: name, the program's;
# status, its exit status; totals, a file that "passed failed skipped" is added to. A listed test
# that gave no result has failed: the program crashed in it, ran out of time, or never came to it.
FNR == NR {
  sub(/ +#.*/, "")  # the value of a parameter
  if ($0 ~ /^[^ ].*\.$/) {
    suite = $0
    suites[++suite_count] = suite
  } else if ($0 ~ /^  /) {
    test = suite substr($0, 3)
    tests[++test_count] = test
    suite_of[test] = suite
  }
  next
}

function finish(outcome, tag) {
  match($0, tag "[^ ,]*")
  if (substr($0, RSTART + 13, RLENGTH - 13) != running) return
  result[running] = outcome
  if (match($0, /\([0-9]+ ms\)/))
    milliseconds[suite_of[running]] += substr($0, RSTART + 1, RLENGTH - 5)
  running = ""
}

/\[ RUN      \] / {
  match($0, /\[ RUN      \] .*/)
  running = substr($0, RSTART + 13)
  next
}
running != "" && /\[       OK \] / { finish("passed", "\\[       OK \\] "); next }
running != "" && /\[  SKIPPED \] / { finish("skipped", "\\[  SKIPPED \\] "); next }
running != "" && /\[  FAILED  \] / { finish("failed", "\\[  FAILED  \\] "); next }
running != "" { output[running] = output[running] "    " $0 "\n" }
running == "" { outside = outside "    " $0 "\n" }

END {
  if (status == 124 || status == 137) ended = "ran out of time"
  else if (status > 128) ended = "was killed by signal " status - 128
  else ended = "ended with status " status
  for (i = 1; i <= test_count; i++) {
    test = tests[i]
    if (test in result) continue
    if (test ~ /(^|[.\/])DISABLED_/) {
      result[test] = "skipped"
    } else {
      result[test] = "failed"
      if (test == running) output[test] = output[test] "    " name " " ended " in this test\n"
      else not_run[test] = ++not_run_count
    }
  }
  for (i = 1; i <= test_count; i++) count[suite_of[tests[i]], result[tests[i]]]++
  for (i = 1; i <= suite_count; i++) {
    suite = suites[i]
    printf "%-36s %3d passed, %d failed, %d skipped  %6.1f s\n", substr(suite, 1, length(suite) - 1),
      count[suite, "passed"], count[suite, "failed"], count[suite, "skipped"], milliseconds[suite] / 1000
    passed += count[suite, "passed"]
    failed += count[suite, "failed"]
    skipped += count[suite, "skipped"]
  }
  for (i = 1; i <= test_count; i++)
    if (result[tests[i]] == "failed" && !(tests[i] in not_run)) printf "  FAILED %s\n%s", tests[i], output[tests[i]]
  if (not_run_count) {
    printf "  FAILED by not running, as %s %s%s:\n", name, ended, (running ? " in " running : "")
    for (i = 1; i <= test_count; i++) if (tests[i] in not_run) print "    " tests[i]
  }
  if (test_count == 0 || (status != 0 && failed == 0)) {
    printf "  FAILED %s: %s, though no test failed\n%s", name, test_count ? ended : "it has no tests", outside
    failed++
  }
  print passed + 0, failed + 0, skipped + 0 >> totals
}
