#include <testing/frames.h>
#include <testing/judge/remote_ranks.h>
#include <testing/multi_rank.h>

#include <cstdlib>

#include "expect_text.h"
#include "failures_of.h"
#include "temporary_folder.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;

constexpr int kRanks = 2;
const std::string kRight = "what the judge expects";

Json rank_report(const std::string& text) {
  Json report = Json::parse(R"({
      "code": 0, "signal": 0, "stopped": false, "frozen_by": 0, "message": "", "last_call": "",
      "first_to_fail": false, "finished": true, "observed_after": {"text": 1},
      "steps": ["observes \"text\""], "crash_address": null, "latest": "text",
      "not_its_own": ""})");
  report["observations"] = {{"text", text}};
  return report;
}

// The report of run `run` of the running test, as a program of ranks sends it.
Json report(int run, const std::string& text) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  return {{"test", std::string(test.test_suite_name()) + '.' + test.name()},
          {"run", run},
          {"not_started", ""},
          {"ranks", std::vector<Json>(kRanks, rank_report(text))}};
}

std::string framed(const Json& json) {
  const std::vector<uint8_t> frame = to_frame(json);
  return {frame.begin(), frame.end()};
}

// The judge in this very process, with programs of ranks that send given bytes.
class HostileReports : public testing::Test {
 protected:
  void SetUp() override {
    const std::string script =
        folder_.write("ranks.sh",
                      "for argument; do case $argument in --report_to=*)\n"
                      "cat \"$1\" >/proc/self/fd/${argument#*=};; esac; done");
    setenv("FSDP_RANKS_OF", ("sh " + script + ' ' + folder_.path() + "/stream").c_str(), 1);
  }
  void TearDown() override { unsetenv("FSDP_RANKS_OF"); }

  // Which run of this test the judge waits for next.
  int run() const { return run_; }

  // Why the judge's comparisons fail with these bytes for its next run; empty if they pass.
  std::string failure(const std::string& stream) {
    folder_.write("stream", stream);
    const std::string text = failure_of([&] {
      ++run_;
      const remote_ranks::RunReport report = remote_ranks::receive(kRanks);
      if (!report.not_started.empty()) throw std::runtime_error("not started");
      const RankRun run(report.ranks);
      if (!run.failure().empty()) throw std::runtime_error(run.failure());
      expect_on_all_ranks(run, "text", kRight);
    });
    failure_of([&] {  // the program that has reported ends here
      ++run_;
      remote_ranks::receive(kRanks);
    });
    return text;
  }

 private:
  // What `call` throws, or reports to GoogleTest.
  template <class Call>
  static std::string failure_of(Call call) {
    return failures_of([&] {
      try {
        call();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "threw " << error.what();
      }
    });
  }

  TemporaryFolder folder_;
  int run_{};
};

TEST_F(HostileReports, pass_as_they_are) {
  EXPECT_EQ(failure(framed(report(run(), kRight))), "");
  EXPECT_CONTAINS(failure(framed(report(run(), "another"))), "is \"another\"");
  EXPECT_CONTAINS(failure(framed(report(run() + 1, kRight))), "left out a run of ranks");
}

TEST_F(HostileReports, of_odd_lengths_and_depths_are_no_reports) {
  const auto with_length = [](uint64_t length, const std::string& bytes) {
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + bytes;
  };
  const std::string deep(8'000'000, '\x81');  // an array in an array in ...
  const std::string huge_array = "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff\x01";
  const std::string huge_text = "\x7b\x7f\xff\xff\xff\xff\xff\xff\xff\x61";
  for (const std::string& stream :
       {with_length(0, ""), with_length(UINT64_MAX, "x"), with_length((64 << 20) + 1, "x"),
        with_length(deep.size(), deep), with_length(huge_array.size(), huge_array),
        with_length(huge_text.size(), huge_text)})
    EXPECT_CONTAINS(failure(stream), "sent what is no report");
  EXPECT_CONTAINS(failure(""), "left by exit(0)");
  EXPECT_CONTAINS(failure("short"), "left by exit(0)");
  EXPECT_CONTAINS(failure(with_length(5, "")), "left by exit(0)");
}

TEST_F(HostileReports, of_other_ranks_or_of_another_test_are_not_taken) {
  Json other = report(run(), kRight);
  other["ranks"].push_back(rank_report(kRight));
  EXPECT_CONTAINS(failure(framed(other)), "reported 3 ranks of 2");
  other = report(run(), kRight);
  other["test"] = "Another.test";
  EXPECT_CONTAINS(failure(framed(other) + framed(other)), "left by exit(0)");
}

}  // namespace
}  // namespace fsdp
