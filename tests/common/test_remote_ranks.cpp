#include <base/todo.h>
#include <testing/judge/remote_ranks.h>
#include <testing/multi_rank.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "expect_text.h"

namespace fsdp {
namespace {

// Not run by themselves: a test below runs one of them in another process, as a judge of this very
// program.
class Judged : public testing::Test {
 protected:
  static bool in_program_of_ranks() { return remote_ranks::reporting(); }
};

TEST_F(Judged, DISABLED_passes) {
  const RankRun oracle =
      run_oracle([](TestRank& rank) { rank.observe("sum", at::arange(5).sum().item<int64_t>()); });
  for (int i = 0; i < 2; ++i) {
    const RankRun run = run_ranks(2, [&](TestRank& rank) {
      rank.observe("sum", at::arange(5).sum().item<int64_t>());
      rank.observe("tensor", at::full({3}, i));
      rank.observe("reported", in_program_of_ranks());
    });
    expect_on_all_ranks(run, "sum", oracle.at(0, "sum"));
    expect_on_all_ranks(run, "reported", true);
    expect_same_on_all_ranks(run, "tensor");
  }
}

TEST_F(Judged, DISABLED_isToldWhatRanksFoundWrong) {
  run_ranks(2, [](TestRank& rank) { EXPECT_EQ(rank.rank(), 0) << "it is another"; });
}

TEST_F(Judged, DISABLED_isNotDecidedByTheProgramOfTheRanks) {
  const RankRun run = run_ranks(1, [](TestRank& rank) { rank.observe("value", 2); });
  if (in_program_of_ranks()) {
    std::puts("[       OK ] Judged.isNotDecidedByTheProgramOfTheRanks (0 ms)");
    _exit(0);
  }
  expect_on_all_ranks(run, "value", 1);
}

TEST_F(Judged, DISABLED_failsWhenTheProgramOfTheRanksLeaves) {
  if (in_program_of_ranks()) _exit(0);
  run_ranks(1, [](TestRank&) {});
}

TEST_F(Judged, DISABLED_failsWhenARunIsLeftOut) {
  if (!in_program_of_ranks()) run_ranks(1, [](TestRank&) {});
  run_ranks(2, [](TestRank&) {});
}

TEST_F(Judged, DISABLED_isNotStartedWhereRanksAreNot) {
  run_ranks(1, [](TestRank&) { todo("a function", "1.1"); });
}

// What a judge of the test prints.
std::string judged(const std::string& test) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "FSDP_RANKS_OF='" + self + " --gtest_also_run_disabled_tests' " +
                              self +
                              " --gtest_also_run_disabled_tests --gtest_color=no --gtest_filter="
                              "Judged.DISABLED_" +
                              test + " 2>&1";
  FILE* output = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> bytes;
  while (const size_t count = fread(bytes.data(), 1, bytes.size(), output))
    text.append(bytes.data(), count);
  pclose(output);
  return text;
}

TEST(RemoteRanks, areComparedInTheJudge) {
  EXPECT_CONTAINS(judged("passes"), "[  PASSED  ] 1 test.");
  const std::string text = judged("isToldWhatRanksFoundWrong");
  EXPECT_CONTAINS(text, "on rank 1");
  EXPECT_CONTAINS(text, "it is another");
  EXPECT_CONTAINS(text, "[  FAILED  ] 1 test");
}

TEST(RemoteRanks, decideNothingByWhatTheirProgramPrintsOrReturns) {
  EXPECT_CONTAINS(judged("isNotDecidedByTheProgramOfTheRanks"), "[  FAILED  ] 1 test");
}

TEST(RemoteRanks, thatDoNotReportFailTheTest) {
  EXPECT_CONTAINS(judged("failsWhenTheProgramOfTheRanksLeaves"),
                  "the program of the ranks left by exit(0) before a run of 1 ranks was over");
  EXPECT_CONTAINS(judged("failsWhenARunIsLeftOut"), "reported 2 ranks of 1");
}

TEST(RemoteRanks, thatAreNotWrittenAreToldAsThat) {
  EXPECT_CONTAINS(judged("isNotStartedWhereRanksAreNot"), "not started: a function (problem 1.1)");
}

}  // namespace
}  // namespace fsdp
