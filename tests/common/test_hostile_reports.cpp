#include <gtest/gtest-spi.h>
#include <testing/frames.h>
#include <testing/judge/remote_ranks.h>
#include <testing/multi_rank.h>

#include <cmath>
#include <cstdlib>

#include "expect_text.h"
#include "hostile_json.h"
#include "temporary_folder.h"

namespace fsdp {
namespace {

using Json = nlohmann::json;

constexpr int kRanks = 2;
const std::string kRight = "what the judge expects, which no change of bytes makes of another";

Json tensor(const std::vector<float>& values) {
  const auto* begin = reinterpret_cast<const uint8_t*>(values.data());
  return {{"<dtype>", static_cast<int>(at::kFloat)},
          {"<sizes>", {values.size()}},
          {"<bytes>", Json::binary({begin, begin + values.size() * sizeof(float)})}};
}

Json rank_report(const std::string& text, const std::vector<float>& values) {
  Json report = Json::parse(R"({
      "code": 0, "signal": 0, "stopped": false, "frozen_by": 0, "message": "", "last_call": "",
      "first_to_fail": false, "finished": true, "observed_after": {"text": 1, "tensor": 2},
      "steps": ["observes \"text\"", "observes \"tensor\""], "crash_address": null, "latest": "tensor",
      "not_its_own": ""})");
  report["observations"] = {{"text", text},
                            {"tensor", with_places(tensor(values), {{{"p", {3}, 0}}, 3, 0})}};
  return report;
}

// The report of run `run` of the running test, as a program of ranks sends it.
Json report(int run, const std::string& text, const std::vector<float>& values) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  return {{"test", std::string(test.test_suite_name()) + '.' + test.name()},
          {"run", run},
          {"not_started", ""},
          {"ranks", std::vector<Json>(kRanks, rank_report(text, values))}};
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
      const auto everywhere = [](int) { return Places{{}, 3, 0}; };  // all of it is padding
      expect_on_all_ranks(run, "text", kRight);
      expect_same_on_all_ranks(run, "text");
      expect_on_all_ranks(run, "tensor", tensor({0, 0, 0}));
      expect_mean_over_ranks(run, "tensor", everywhere);
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
    testing::TestPartResultArray failures;
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    try {
      call();
    } catch (const std::exception& error) {
      return std::string("threw ") + error.what();
    }
    return failures.size() == 0 ? "" : failures.GetTestPartResult(0).message();
  }

  TemporaryFolder folder_;
  int run_{};
};

TEST_F(HostileReports, pass_as_they_are) {
  EXPECT_EQ(failure(framed(report(run(), kRight, {0, 0, 0}))), "");
  EXPECT_CONTAINS(failure(framed(report(run(), "another", {0, 0, 0}))), "is \"another\"");
  EXPECT_CONTAINS(failure(framed(report(run(), kRight, {0, 1, 0}))), "1 of 3 elements differ");
  EXPECT_CONTAINS(failure(framed(report(run() + 1, kRight, {0, 0, 0}))), "left out a run of ranks");
}

TEST_F(HostileReports, bring_no_point_and_do_not_end_the_judge_whatever_is_changed_in_them) {
  const auto wrong = [&](Dice& dice) {
    return below(dice, 2) == 0 ? report(run(), "another", {0, 0, 0})
                               : report(run(), kRight, {1.5, 2.5, 3.5});
  };
  for (int seed = 0; seed < hostile_tries(); ++seed) {
    Dice dice(seed);
    std::string stream;
    for (size_t i = below(dice, 3); i > 0; --i)  // of earlier runs, which are over
      stream += framed(report(run() - static_cast<int>(i), kRight, {0, 0, 0}));
    Json changed = wrong(dice);
    for (size_t i = 1 + below(dice, 3); i > 0; --i)
      spoil(changed, dice);
    stream += framed(changed);
    if (below(dice, 2) == 0) spoil(stream, dice);
    EXPECT_NE(failure(stream), "")
        << "seed " << seed << ": " << changed.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
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

TEST_F(HostileReports, of_other_ranks_steps_and_tests_are_not_taken) {
  Json more_steps = report(run(), "another", {0, 0, 0});
  more_steps["ranks"][0]["observed_after"]["text"] = int64_t{1} << 40;
  EXPECT_CONTAINS(failure(framed(more_steps)), "is \"another\"");
  for (const size_t ranks : {0, 1, 3, 1000}) {
    Json other = report(run(), kRight, {0, 0, 0});
    other["ranks"] = std::vector<Json>(ranks, rank_report(kRight, {0, 0, 0}));
    EXPECT_CONTAINS(failure(framed(other)), "reported " + std::to_string(ranks) + " ranks of 2");
  }
  Json other = report(run(), kRight, {0, 0, 0});
  other["test"] = "Another.test";
  EXPECT_CONTAINS(failure(framed(other) + framed(other)), "left by exit(0)");
}

}  // namespace
}  // namespace fsdp
