#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <fully_shard.h>
#include <gtest/gtest.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <launch/rank_exit.h>
#include <memory/counting_allocator.h>
#include <testing/toy_model.h>
#include <trace/recorder.h>
#include <unistd.h>

#include <common/expect_text.h>

namespace fsdp {
namespace {

// Rank 1 pauses in its second forward. So an all-gather of rank 0 times out while prefetched
// all-gathers are still pending. When the exception leaves rank 0's modules, its hooks reshard
// every unit. They must not wait for rank 1 again.
void play(const RankContext& context) {
  CommunicatorOptions with_time_limit;
  with_time_limit.timeout = std::chrono::milliseconds(500);
  ToyModel model(8);
  FullyShardOptions options;
  options.wrap = wrap_by_type("ToyBlock");
  options.limit = 3;
  const auto sharded = fully_shard(model, Communicator::create(context, with_time_limit), options);
  model(toy_tokens(context.rank)).sum().backward();
  if (context.rank == 1) {
    model.blocks[1]->register_forward_pre_hook([](Module&, const at::Tensor&) -> at::Tensor {
      for (;;)
        pause();
    });
  }
  model(toy_tokens(context.rank));
}

TEST(FailedStep, a_failed_step_waits_only_once_for_a_missing_rank) {
  const auto log = EventLog::create(2);
  const LaunchResult result = launch(2, [&](const RankContext& context) {
    counting_allocator::install();
    at::set_num_threads(1);
    const Recorder recorder(log, context.rank, monotonic_clock());
    play(context);
    return 0;
  });
  ASSERT_EQ(result.first_failure, 0);
  EXPECT_CONTAINS(result.ranks[0].text(), "timed out after 0.5 s: rank 1 has not called it");

  std::vector<std::string> issued, waited, unended;
  for (const Event& event : log->events(0)) {
    if (event.kind == EventKind::issue) issued.push_back(event.name());
    if (event.kind != EventKind::wait) continue;
    (event.ended() ? waited : unended).push_back(event.name());
  }
  EXPECT_EQ(unended, std::vector<std::string>{"blocks4"});
  EXPECT_EQ(issued.back(), "blocks5") << "no all-gather was pending after the one that failed";
}

}  // namespace
}  // namespace fsdp
