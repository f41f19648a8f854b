#pragma once

#include <testing/rank_report.h>

#include <chrono>

// For grading: the ranks of a test run in another program, of the same tests over the code that is
// graded. The program that compares never holds that code, so nothing that the code prints,
// overwrites or returns decides; and the program of the ranks is told what to run, not what to
// expect.
//
//   FSDP_RANKS_OF='COMMAND...' mine_task3_tests        judges: runs COMMAND when a test wants ranks
//   COMMAND... --gtest_filter=... --report_to=FD       runs the tests, reports every run of ranks
//
// The judge links the skeletons: a test that calls the code outside of a rank is not started there.
namespace fsdp::remote_ranks {

// What became of one run_ranks().
struct RunReport {
  std::string not_started;  // what is still to be written, else empty
  std::vector<RankReport> ranks;
};

// How long ranks may take there, whatever a test allows.
constexpr std::chrono::seconds kTimeLimit{20};

bool judging();
void report_to(int file);  // makes this the program of the ranks
bool reporting();

// The running test's next run has ended. A judge that is gone is no error.
void report(const RunReport& run);

// Of the running test's next run, on `world_size` ranks. Starts the program of the ranks with this
// test and those after it, if it isn't running. Throws std::runtime_error when the report does not
// come: the program has ended, says something else or takes longer than kTimeLimit and a start.
RunReport receive(int world_size);

}  // namespace fsdp::remote_ranks
