#pragma once

#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <launch/rank_context.h>
#include <testing/error_text.h>
#include <testing/places.h>

#include <nlohmann/json.hpp>
#include <set>

namespace fsdp {

class Channel;

// Options of run_ranks().
struct RunOptions {
  c10::DeviceType device{c10::kCPU};  // `device` to `clock`: options of the communicator
  std::string backend{"auto"};
  std::chrono::milliseconds timeout{2'000};
  std::optional<Fault> fault{};
  std::optional<Link> link{};
  std::shared_ptr<Clock> clock{monotonic_clock()};
  // The time limit of the whole run of a rank: a rank that is still running then is ended, which
  // counts as a failure of the rank.
  std::chrono::milliseconds time_limit{60'000};
  // If `record` is true, the harness records what the ranks do, and a test that fails prints it as
  // numbered steps.
  bool record{true};
};

// One rank of a test, as the body of run_ranks() uses it.
// - The rank observes values, and the test's own process compares them.
// - An EXPECT_ or ASSERT_ that fails in the body throws an exception, which ends the run.
// - In a rank, torch has one thread, live bytes are counted, and memory that was allocated but not
//   yet written, or that was freed, holds NaN.
class TestRank {
 public:
  TestRank(const RankContext& context, const RunOptions& options, Channel& channel);

  int rank() const { return context_.rank; }
  int world_size() const { return context_.world_size; }

  // Returns the communicator of this rank. The first call creates it; every rank must make that
  // call.
  const std::shared_ptr<Communicator>& communicator();
  // Returns a new communicator in each call. All ranks must make the call together.
  std::shared_ptr<Communicator> another_communicator() const;
  // Returns a communicator with replicas of `shard_size` ranks each: see
  // Communicator::create_hybrid(). The first call creates it; every rank must make that call. A
  // rank may use both communicator() and hybrid().
  const std::shared_ptr<Communicator>& hybrid(int shard_size);

  // Each overload of observe() sends a value to the test's own process, under a name that this rank
  // has not used before. For a tensor, dtype, sizes and bytes are sent. With `places`, a failure
  // names the parameter that a wrong element belongs to.
  void observe(const std::string& name, const nlohmann::json& value);
  void observe(const std::string& name, const at::Tensor& tensor);
  void observe(const std::string& name, const at::Tensor& tensor, const Places& places);

 private:
  CommunicatorOptions options() const;

  const RankContext& context_;
  const RunOptions& options_;
  Channel& channel_;
  // What communicator() and hybrid() return; null before the first call of the function.
  std::shared_ptr<Communicator> communicator_, hybrid_;
  std::set<std::string> names_;  // names of the observations that this rank has made so far
};

}  // namespace fsdp
