#include <memory/live_bytes.h>
#include <testing/counted_clock.h>

#include "replicated_toy.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T0_3_data_parallel);

// Runs one backward pass and finish(). Observes the gradients, the collectives of the pass, and the
// collectives of finish().
RankRun run_step(int world_size, const Loss& loss, const MakeToy& make = kReplicatedToy) {
  return run_ranks(world_size, [&](TestRank& rank) {
    const auto model = make();
    const auto parallel = make_data_parallel(*model, rank.communicator(), kBucketOfABlock);
    loss(*model, rank.rank()).backward();
    rank.observe("calls during backward", take_calls(*rank.communicator()));
    parallel->finish();
    rank.observe("calls in finish()", take_calls(*rank.communicator()));
    observe_gradients(rank, *model);
  });
}

MULTI_RANK_TEST(T0_3_data_parallel, gradients_are_the_mean_over_ranks_bit_by_bit) {
  expect_means(run_step(world_size(), kPlainLoss));
}

MULTI_RANK_TEST(T0_3_data_parallel, the_all_reduces_of_all_buckets_are_issued_during_backward) {
  const RankRun run = run_step(world_size(), kPlainLoss);
  expect_on_all_ranks(run, "calls during backward", kFiveBuckets);
  expect_on_all_ranks(run, "calls in finish()", "");
}

MULTI_RANK_TEST(T0_3_data_parallel, a_buckets_all_reduce_is_issued_when_its_last_gradient_arrives) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto model = kReplicatedToy();
    const auto parallel = make_data_parallel(*model, rank.communicator(), kBucketOfABlock);
    std::string seen;
    for (const auto& block : model->blocks)
      block->register_full_backward_pre_hook(
          [&](Module&) { seen += take_calls(*rank.communicator()) + "| "; });
    kPlainLoss(*model, rank.rank()).backward();
    parallel->finish();
    rank.observe("calls before the backward of blocks2, blocks1 and blocks0", seen);
  });
  expect_on_all_ranks(run, "calls before the backward of blocks2, blocks1 and blocks0",
                      "| all_reduce bucket.0; | all_reduce bucket.1; | ");
}

MULTI_RANK_TEST(T0_3_data_parallel, buckets_have_one_order_even_if_gradients_arrive_in_another) {
  const RankRun run = run_step(world_size(), kReverseOrderOnOddRanks);
  expect_on_all_ranks(run, "calls during backward", kFiveBuckets);
  expect_means(run, kReverseOrderOnOddRanks);
}

MULTI_RANK_TEST(T0_3_data_parallel, ranks_average_gradients_even_if_one_rank_does_not_use_a_block) {
  const RankRun run = run_step(world_size(), kBlockUnusedOnRank0);
  expect_on_rank(run, 0, "calls during backward", "all_reduce bucket.0; ");
  expect_means(run, kBlockUnusedOnRank0);
}

MULTI_RANK_TEST(T0_3_data_parallel, a_rank_whose_loss_reaches_no_parameter_joins_every_all_reduce) {
  const RankRun run = run_step(world_size(), kNothingOnRank0);
  expect_on_rank(run, 0, "calls in finish()", kFiveBuckets);
  expect_means(run, kNothingOnRank0);
}

MULTI_RANK_TEST(T0_3_data_parallel, a_frozen_parameter_is_in_no_bucket) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto model = kFrozenBias();
    const auto parallel = make_data_parallel(*model, rank.communicator(), kBucketOfABlock);
    kPlainLoss(*model, rank.rank()).backward();
    parallel->finish();
    std::string numels;
    for (const Call& call : rank.communicator()->take_log())
      numels += std::to_string(call.numel) + " ";
    rank.observe("elements of each bucket", numels);
    rank.observe("the frozen bias has a .grad", model->blocks[1]->bias.grad().defined());
    observe_gradients(rank, *model);
  });
  expect_on_all_ranks(run, "elements of each bucket", "59 55 56 7 77 ");
  expect_on_all_ranks(run, "the frozen bias has a .grad", false);
  expect_means(run, kPlainLoss, kFrozenBias);
}

MULTI_RANK_TEST(T0_3_data_parallel, a_tied_weight_is_averaged_once_with_the_sum_of_its_uses) {
  expect_means(run_step(world_size(), kPlainLoss, kTiedBlocks), kPlainLoss, kTiedBlocks);
}

// If .grad kept a gradient after its copy into the bucket, every gradient would take its memory
// twice during backward.
MULTI_RANK_TEST(T0_3_data_parallel, after_its_copy_into_a_bucket_a_gradient_is_removed_from_grad) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto model = kReplicatedToy();
    const auto parallel = make_data_parallel(*model, rank.communicator(), kBucketOfABlock);
    kPlainLoss(*model, rank.rank()).backward();
    int left = 0;
    for (const at::Tensor& parameter : model->parameters())
      left += parameter.grad().defined();
    rank.observe("parameters with a .grad between backward and finish()", left);
    parallel->finish();
  });
  expect_on_all_ranks(run, "parameters with a .grad between backward and finish()", 0);
}

MULTI_RANK_TEST(T0_3_data_parallel, after_finish_only_the_buckets_hold_gradients) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto model = kReplicatedToy();
    const auto parallel = make_data_parallel(*model, rank.communicator(), kBucketOfABlock);
    const int64_t before = live_bytes::now().total;
    kPlainLoss(*model, rank.rank()).backward();
    parallel->finish();
    rank.observe("bytes more than before the step", live_bytes::now().total - before);
    rank.observe("bytes of gradients", live_bytes::now()[MemoryClass::gradients]);
    const ToyBlock& block = *model->blocks[2];
    rank.observe("gradients of a block share their bucket",
                 block.weight.grad().storage().is_alias_of(block.bias.grad().storage()));
    model->zero_grad();
    rank.observe("bytes of gradients after zero_grad()", live_bytes::now()[MemoryClass::gradients]);
  });
  expect_on_all_ranks(run, {{"bytes more than before the step", toy_bytes(3)},
                            {"bytes of gradients", toy_bytes(3)},
                            {"gradients of a block share their bucket", true},
                            {"bytes of gradients after zero_grad()", 0}});
}

MULTI_RANK_TEST(T0_3_data_parallel, four_steps_of_data_parallel_equal_four_steps_of_one_process) {
  const auto step = [](const ToyModel& model) {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model.parameters()) {
      parameter.sub_(parameter.grad(), 0.01);
      parameter.mutable_grad().reset();
    }
  };
  const auto observe = [](TestRank& rank, const ToyModel& model) {
    for (const auto& [name, parameter] : distinct_parameters(model))
      rank.observe(name + " after four steps", parameter.detach());
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto model = kReplicatedToy();
    const auto parallel = make_data_parallel(*model, rank.communicator(), kBucketOfABlock);
    for (int i = 0; i < 4; ++i) {
      kPlainLoss(*model, rank.rank() + i).backward();
      parallel->finish();
      step(*model);
    }
    observe(rank, *model);
  });
  const RankRun oracle = run_oracle([&](TestRank& rank) {
    const auto model = kReplicatedToy();
    for (int i = 0; i < 4; ++i) {
      compute_means(*model, run.world_size(),
                    [&](ToyModel& toy, int r) { return kPlainLoss(toy, r + i); });
      step(*model);
    }
    observe(rank, *model);
  });
  expect_as(run, oracle);
}

struct OneWeight : Module {
  torch::Tensor forward(torch::Tensor x) override { return x * weight; }
  at::Tensor weight = register_parameter("weight", at::ones({3}));
};

MULTI_RANK_TEST(T0_3_data_parallel, a_second_backward_before_finish_throws) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    OneWeight model;
    const auto parallel = make_data_parallel(model, rank.communicator());
    model(at::full({3}, 2)).sum().backward();
    rank.observe("what the second backward throws",
                 thrown_by([&] { model(at::ones({3})).sum().backward(); }));
    parallel->finish();
    rank.observe("mean of the first backward", model.weight.grad().mean().item<double>());
  });
  expect_error(run, "what the second backward throws", {"std::logic_error", "weight"});
  expect_on_all_ranks(run, "mean of the first backward", 2.);
}

MULTI_RANK_TEST(T0_3_data_parallel, two_data_parallel_models_in_one_process_share_no_state) {
  const MakeToy smaller = [] { return std::make_shared<ToyModel>(2); };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto model = kReplicatedToy(), other = smaller();
    const auto parallel = make_data_parallel(*model, rank.communicator(), kBucketOfABlock);
    const auto parallel_of_other = make_data_parallel(*other, rank.communicator());
    kPlainLoss(*model, rank.rank()).backward();
    kPlainLoss(*other, rank.rank()).backward();
    parallel_of_other->finish();
    parallel->finish();
    observe_gradients(rank, *model);
  });
  expect_means(run);
}

MULTI_RANK_TEST(T0_3_data_parallel, after_data_parallel_is_destroyed_gradients_are_not_averaged) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto model = kReplicatedToy();
    auto parallel = make_data_parallel(*model, rank.communicator(), kBucketOfABlock);
    kPlainLoss(*model, rank.rank()).backward();
    parallel->finish();
    take_calls(*rank.communicator());
    parallel.reset();
    model->zero_grad();
    kPlainLoss(*model, 0).backward();
    rank.observe("calls", take_calls(*rank.communicator()));
    observe_gradients(rank, *model);
  });
  expect_on_all_ranks(run, "calls", "");
  const RankRun oracle = run_oracle([](TestRank& rank) {
    const auto model = kReplicatedToy();
    kPlainLoss(*model, 0).backward();
    observe_gradients(rank, *model);
  });
  expect_as(run, oracle);
}

// The tests of the suite T0_3_overlap use a clock that counts time and does not measure it. The
// backward of a block takes kCompute ns. An all-reduce takes two hops of kHop ns for each other
// rank. Nothing else takes time.
constexpr int64_t kHop = 1'000;
constexpr int64_t kCompute = 40'000;

MULTI_RANK_SUITE_ON(T0_3_overlap, 2, 3, 4);  // not on one rank, because a single rank never waits

MULTI_RANK_TEST(T0_3_overlap, backward_never_waits_and_finish_waits_only_for_the_last_buckets) {
  const auto clock = std::make_shared<CountedClock>();
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        const auto model = kReplicatedToy();
        for (const auto& block : model->blocks)
          block->register_full_backward_pre_hook([&](Module&) { clock->pass(kCompute); });
        const auto parallel = make_data_parallel(*model, rank.communicator(), kBucketOfABlock);
        const at::Tensor loss = kPlainLoss(*model, rank.rank());
        const int64_t begin = clock->now();
        loss.backward();
        const int64_t end = clock->now();
        parallel->finish();
        rank.observe("ns that backward takes", end - begin);
        rank.observe("ns that finish() waits", clock->now() - end);
      },
      over_counted_link(clock, std::chrono::nanoseconds(kHop)));
  expect_on_all_ranks(run, "ns that backward takes", 3 * kCompute);
  // The buckets of blocks0 and of the embedding are complete only at the end of backward. The
  // bucket of the head is complete early, but is issued after the bucket of blocks0.
  expect_on_all_ranks(run, "ns that finish() waits", 3 * 2 * (world_size() - 1) * kHop);
}

MULTI_RANK_TEST(T0_3_overlap, begin_waits_for_the_all_reduces_of_an_unfinished_pass) {
  const auto clock = std::make_shared<CountedClock>();
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        const auto reducer = make_bucket_reducer({{3}}, kBucketOfABlock, rank.communicator());
        reducer->begin();
        reducer->place(0).fill_(1);
        reducer->ready(0);
        const int64_t begin = clock->now();
        reducer->begin();
        rank.observe("ns that begin() waits", clock->now() - begin);
        reducer->finish();
      },
      over_counted_link(clock, std::chrono::nanoseconds(kHop)));
  expect_on_all_ranks(run, "ns that begin() waits", 2 * (world_size() - 1) * kHop);
}

}  // namespace
}  // namespace fsdp
