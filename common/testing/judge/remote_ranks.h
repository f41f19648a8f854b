#pragma once

#include <testing/rank_report.h>

#include <chrono>

// For grading. The tests run in two programs: the judge compares, and the program of the ranks runs
// the ranks. Both are compiled from the same tests; only the second one holds the graded code. So
// nothing that this code prints, overwrites or returns can decide a test. The program of the ranks
// knows what to run, not which values the judge expects.
//
//   FSDP_RANKS_OF='COMMAND...' mine_task3_tests      the judge: starts COMMAND when a test needs
//   ranks COMMAND... --gtest_filter=... --report_to=FD     the program of the ranks: reports each
//   run to FD
//
// The judge is linked with the skeletons, so a test that calls task code outside of a rank is "not
// started" there.
namespace fsdp::remote_ranks {

// The result of one run_ranks().
struct RunReport {
  std::string not_started;  // the function that is still to be written; empty if there is none
  std::vector<RankReport> ranks;
};

// The limit of a run in the program of the ranks, if the test's own limit is longer.
constexpr std::chrono::seconds kTimeLimit{20};

bool judging();            // whether this program is the judge
void report_to(int file);  // makes this program the program of the ranks
bool reporting();          // whether it is

// In the program of the ranks: sends the report of the run that has just ended. If the judge is
// gone, nothing happens.
void report(const RunReport& run);

// In a forked rank, before it runs anything else: closes the file of the reports.
void close();

// In the judge: waits for the report of the running test's next run, on `world_size` ranks. If the
// program of the ranks is not running, starts it with this test and the tests after it. Throws
// std::runtime_error if that program ends, sends something else, or sends nothing for kTimeLimit
// and the time of a start. After three starts in a row that brought no report, starts no other.
// Throws without waiting if earlier runs lost too much time (lost_time.h).
RunReport receive(int world_size);

}  // namespace fsdp::remote_ranks
