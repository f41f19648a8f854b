#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <fully_shard.h>
#include <launch/collect.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <launch/rank_exit.h>
#include <memory/counting_allocator.h>
#include <optim/mixed_precision.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>
#include <trace/recorder.h>
#include <unistd.h>

#include <common/expect_text.h>

namespace fsdp {
namespace {

// Rank 1 stops in its second forward, so an all-gather of rank 0 fails there while others, issued
// ahead of their use, are still pending. On its way out rank 0's hooks reshard every unit.
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

TEST(FailedStep, waits_once_for_the_rank_that_does_not_come) {
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
  EXPECT_EQ(issued.back(), "blocks5") << "no all-gather was pending behind the one that failed";
}

// What the contracts do not allow, and the reference refuses.
MULTI_RANK_SUITE(Misuse);

MULTI_RANK_TEST(Misuse, a_reduction_while_one_is_under_way_is_refused_and_the_first_one_ends) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const at::Tensor parameter = at::zeros({5}).requires_grad_();
    const auto unit = make_flat_parameter("block", {{"weight", parameter}}, rank.communicator());
    const auto collect = [&](double value) {
      parameter.mutable_grad() = at::full({5}, value);
      unit->collect_gradient(0);
    };
    collect(1);
    unit->reduce_gradient();
    collect(2);
    rank.observe("error", error_of<std::logic_error>([&] { unit->reduce_gradient(); }));
    unit->wait_for_reduction();
    rank.observe("first", unit->sharded_gradient().max().item<double>());
    unit->reduce_gradient();
    unit->wait_for_reduction();
    rank.observe("both", unit->sharded_gradient().max().item<double>());
  });
  expect_on_all_ranks(run, "error", "unit block: reduce_gradient() before wait_for_reduction()");
  expect_on_rank(run, 0, "first", 1.0);
  expect_on_rank(run, 0, "both", 3.0);
}

TEST(MixedPrecision, is_of_no_other_dtype_than_fp32_bf16_and_fp16) {
  const auto refusal = [](const MixedPrecisionPolicy& policy) {
    return error_of<std::invalid_argument>([&] { check_mixed_precision(policy); });
  };
  EXPECT_EQ(refusal({at::kDouble, at::kFloat}),
            "param_dtype Double: takes Float, BFloat16 or Half");
  EXPECT_EQ(refusal({at::kHalf, at::kInt}), "reduce_dtype Int: takes Float, BFloat16 or Half");
}

}  // namespace
}  // namespace fsdp
