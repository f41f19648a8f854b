#pragma once

#include <comm/communicator.h>
#include <gtest/gtest.h>
#include <testing/judge/cases.h>
#include <testing/observed_tensor.h>
#include <testing/places.h>

#include <map>
#include <set>

// Tests whose code runs on W ranks, each a forked process. Ranks send observations and the test's
// own process compares them: it runs no torch operator, so what a test expects of torch is observed
// too, by a run of one rank.
//
//   MULTI_RANK_SUITE(T2_3_unshard);
//
//   TEST_P(T2_3_unshard, gathers_with_one_collective) {
//     const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
//       ...
//       rank.observe("collectives", rank.communicator()->take_log().size());
//       rank.observe("weight", unit.parameter("weight"));
//     });
//     expect_on_all_ranks(run, "collectives", 1);
//     expect_same_on_all_ranks(run, "weight");
//   }
namespace fsdp {

class Channel;
class EventLog;
struct RankReport;

struct RunOptions {
  std::string backend{"auto"};  // of the communicator, as the next four
  std::chrono::milliseconds timeout{2'000};
  std::optional<Fault> fault{};
  std::optional<Link> link{};
  std::shared_ptr<Clock> clock{monotonic_clock()};
  std::chrono::milliseconds time_limit{60'000};  // of the whole run
  bool record{true};                             // what the ranks do; tells it when a test fails
};

// One rank of a run, as its body sees it. EXPECT_ and ASSERT_ work in a body too: what fails there
// is reported in the test with the ranks' numbers. Torch has one thread, live bytes are counted,
// and memory that nobody may use holds NaN.
class TestRank {
 public:
  TestRank(const RankContext& context, const RunOptions& options, Channel& channel);

  int rank() const { return context_.rank; }
  int world_size() const { return context_.world_size; }
  const std::shared_ptr<Communicator>& communicator();  // made by the first call, on every rank

  // Sends a value under a name that this rank has not used yet. Of a tensor: dtype, sizes and
  // bytes; with `places`, a wrong element will be told as that of a parameter.
  void observe(const std::string& name, const nlohmann::json& value);
  void observe(const std::string& name, const at::Tensor& tensor);
  void observe(const std::string& name, const at::Tensor& tensor, const Places& places);

 private:
  const RankContext& context_;
  const RunOptions& options_;
  Channel& channel_;
  std::shared_ptr<Communicator> communicator_;
  std::set<std::string> names_;
};

// What the ranks of a run observed.
class RankRun {
 public:
  explicit RankRun(const std::vector<RankReport>& ranks);

  int world_size() const { return static_cast<int>(observations_.size()); }
  bool observed(int rank, const std::string& name) const;
  // Asked for what was not observed, both end the test as failed.
  const nlohmann::json& at(int rank, const std::string& name, const char* file = __builtin_FILE(),
                           int line = __builtin_LINE()) const;
  ObservedTensor tensor(int rank, const std::string& name, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) const;

  // What went wrong, the cause first, then where the other ranks were; empty if nothing did.
  const std::string& failure() const { return failure_; }

  // What the ranks did up to their observation `name`, as numbered steps; to be told once.
  std::string story(const std::string& name) const;

 private:
  std::vector<std::map<std::string, nlohmann::json>> observations_;  // by rank
  std::vector<std::map<std::string, size_t>> observed_after_;        // how many steps
  std::vector<std::vector<std::string>> steps_;                      // by rank
  std::string failure_;
  mutable bool told_{};
};

using RankBody = std::function<void(TestRank&)>;

// Runs `body` on W ranks. A rank has to reach the end of it; one that does not, or exceeds the time
// limit, ends the others. When anything failed, the test ends here, and says what. When a rank came
// to a todo(), the test is skipped as "not started", whatever else happened.
RankRun run_ranks(int world_size, const RankBody& body, const RunOptions& options = {},
                  const char* file = __builtin_FILE(), int line = __builtin_LINE());

// What ranks are to be compared with: one rank of torch and common/ alone. It calls nothing of the
// tasks, so that a judged test (testing/judge/remote_ranks.h) has it where the judged code is not.
RankRun run_oracle(const RankBody& body, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE());

// As run_ranks(), for tests of failures, which read the run's failure().
RankRun try_ranks(int world_size, const RankBody& body, const RunOptions& options = {},
                  const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Fail, with the observations of all ranks side by side, unless they are equal (tensors: bitwise).
void expect_on_rank(const RankRun& run, int rank, const std::string& name,
                    const nlohmann::json& expected, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE());
void expect_on_all_ranks(const RankRun& run, const std::string& name,
                         const nlohmann::json& expected, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE());
void expect_same_on_all_ranks(const RankRun& run, const std::string& name,
                              const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Of gradients that rank r made of provenance::gradient(r, W), observed with their places: fails
// unless every element of a parameter is the mean over ranks and padding is zero; says which ranks
// are missing or counted twice.
void expect_mean_over_ranks(const RankRun& run, const std::string& name,
                            const char* file = __builtin_FILE(), int line = __builtin_LINE());

// A suite whose tests (TEST_P) run for each world size: T2_3_unshard.gathers_with_one_collective/W3
class MultiRankTest : public testing::TestWithParam<int> {
 protected:
  static int world_size() { return GetParam(); }
};
#define MULTI_RANK_SUITE(suite) MULTI_RANK_SUITE_ON(suite, 1, 2, 3, 4)
#define MULTI_RANK_SUITE_ON(suite, ...)                                                  \
  class suite : public fsdp::MultiRankTest {};                                           \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(fsdp::world_sizes({__VA_ARGS__})), \
                           [](const auto& info) { return "W" + std::to_string(info.param); })

}  // namespace fsdp
