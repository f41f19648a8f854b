#pragma once

#include <testing/rank_report.h>

#include <chrono>

// For grading. The tests run in two programs: the judge compares, and the program of the ranks runs
// the ranks. Both are compiled from the same tests, but only the program of the ranks contains the
// graded code. So nothing that the graded code prints, overwrites or returns can decide a test. The
// program of the ranks knows what to run, not which values the judge expects.
//
//   FSDP_RANKS_OF='COMMAND...' mine_task3_tests
// is the judge. It starts COMMAND when a test needs ranks.
//   COMMAND... --gtest_filter=... --report_to=FD
// is the program of the ranks. It reports each run to the descriptor FD.
//
// The judge is linked with the skeletons of the tasks, whose functions call todo(). So a test that
// calls code of a task outside a rank is "not started" there.
namespace fsdp::remote_ranks {

// The result of one call of run_ranks(), as the program that runs the ranks reports it.
struct RunReport {
  std::string not_started;  // the function whose todo() a rank has reached; empty: no rank has
  std::vector<RankReport> ranks;
};

// The time limit of one run of ranks during grading, unless the test's own limit is shorter.
constexpr std::chrono::seconds kTimeLimit{20};

// Returns whether this program is the judge, which compares observations and runs no ranks itself.
bool judging();
// Makes this program the program of the ranks, which runs them for the judge. It writes its reports
// to the descriptor `file`.
void report_to(int file);
// Returns whether report_to() has made this program the program of the ranks.
bool reporting();

// Called in the program of the ranks. Sends `run`, the report of the run that has just ended, to
// the judge. Does nothing if the judge has ended.
void report(const RunReport& run);

// Called in a forked rank before it runs anything else. Closes the file of the reports, so that
// graded code cannot write reports.
void close();

// Called in the judge. Waits for the report of the running test's next run, on `world_size` ranks.
// - If the program of the ranks is not running, starts it with the running test and the tests after
//   it.
// - Does not start it again after three starts in a row in which it sent nothing, or if it made no
//   report in time.
// Throws: std::runtime_error if the program of the ranks ends, sends something else, or sends
// nothing for kTimeLimit and the time of a start. Throws without waiting if the program is not
// started again, or if earlier runs lost too much time (lost_time.h).
RunReport receive(int world_size);

}  // namespace fsdp::remote_ranks
