#include <malloc.h>
#include <memory/live_bytes.h>
#include <sharded_optimizer.h>

#include <common/rank_failure.h>
#include <library/models.h>
#include <library/one_process.h>

// The library adds nothing to what a step of fully_shard() costs.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(LibraryCosts);

void observe_costs(TestRank& rank, const std::string& name) {
  std::string calls;
  for (const Call& call : rank.communicator()->take_log())
    calls += std::string(to_string(call.operation)) + ' ' + call.unit.str() + '\n';
  rank.observe(name + " calls", calls);
  for (const Phase phase : {Phase::forward, Phase::backward})
    rank.observe(name + " bytes in " + to_string(phase), live_bytes::peak(phase).by_class);
}

// The second of two steps, from `backward`, and by an optimizer of our own.
void train_two_steps(TestRank& rank, Module& net,
                     const std::vector<std::shared_ptr<FlatParameter>>& units) {
  const auto optimizer = make_sharded_optimizer(units, {{"", {}}}, rank.communicator());
  for (int step = 0; step < 2; ++step) {
    live_bytes::reset(Phase::forward);
    live_bytes::reset(Phase::backward);
    rank.communicator()->take_log();
    live_bytes::enter(Phase::forward);
    const at::Tensor x = batch_part(rank.rank(), rank.world_size(), step, {5, 7});
    const at::Tensor loss = net(x).square().mean();
    live_bytes::enter(Phase::backward);
    loss.backward();
    live_bytes::enter(Phase::optimizer);
    optimizer->step();
    optimizer->zero_grad();
  }
}

MULTI_RANK_TEST(LibraryCosts, are_the_collectives_and_the_live_bytes_of_fully_shard) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    {
      const auto net = block_net();
      const auto sharded = fully_shard(*net, rank.communicator());
      train_two_steps(rank, *net, sharded->units());
      observe_costs(rank, "plain");
    }
    live_bytes::enter(Phase::init);
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    train_two_steps(rank, *net, model.units());
    observe_costs(rank, "library");
  });
  for (const std::string cost : {" calls", " bytes in forward", " bytes in backward"})
    expect_on_each_rank(run, "library" + cost,
                        [&](int rank) { return run.at(rank, "plain" + cost); });
}

MULTI_RANK_TEST(LibraryCosts, end_with_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto before = live_bytes::now().total;
    {
      ShardedNet sharded(rank);
      sharded.step();
      sharded.model.state_dict();
    }
    rank.observe("left", live_bytes::now().total - before);
  });
  expect_on_all_ranks(run, "left", 0);
}

// [bytes] of 100,000 in 10,000 steps. Without the harness, which keeps records for its stories.
TEST(LibraryMemory, does_not_grow_with_the_steps) {
  const auto result = launch(2, [](const RankContext& context) {
    const auto allocated = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
    const auto net = block_net(1);
    FullyShardedDataParallel model(*net, Communicator::create(context));
    const auto optimizer = adamw(model.parameters());
    size_t before = 0;
    for (int step = 0; step < 3000; ++step) {
      if (step == 1000) before = allocated();
      (*net)(at::ones({1, 7})).sum().backward();
      model.clip_grad_norm_(1);
      optimizer->step();
      optimizer->zero_grad();
    }
    const size_t after = allocated();
    require(after < before + 20'000, std::to_string(after - before) + " bytes more");
    return 0;
  });
  EXPECT_EQ(failure(result), "");
}

}  // namespace
}  // namespace fsdp
