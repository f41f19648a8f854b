#include <nn/gradient_hook.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/lbfgs.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include "replicated_net.h"

// Tests behavior that only DistributedDataParallel has. Tests in other files that use
// expect_equal_to_one_process() train most kinds of models with both FullyShardedDataParallel and
// DistributedDataParallel.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(DdpReplica);

MULTI_RANK_TEST(DdpReplica, ddp_loads_the_state_of_fsdp_and_fsdp_loads_the_state_of_ddp) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet shards(rank, momentum, block_net(3, 5));
    ReplicatedNet replicas(rank);
    const auto go_on = [&](auto& from, auto& to) {
      from.step(0);
      to.model.load_state_dict(from.model.state_dict());
      to.model.load_optim_state_dict(*to.optimizer, from.model.optim_state_dict(*from.optimizer));
      from.step(1);
      to.step(1);
      EXPECT_TRUE(at::equal(shards.model.state_dict().at("b0.linear.weight"), replicas.weight));
      const StateDict moments = shards.model.optim_state_dict(*shards.optimizer);
      for (const auto& entry : replicas.model.optim_state_dict(*replicas.optimizer))
        EXPECT_TRUE(at::equal(moments.at(entry.key()), entry.value())) << entry.key();
    };
    go_on(shards, replicas);
    go_on(replicas, shards);
  });
}

MULTI_RANK_TEST(DdpReplica, a_rank_of_ddp_that_uses_no_parameter_contributes_zero_gradients) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ReplicatedNet replicas(rank);
    const at::Tensor x = at::ones({2, 7}).requires_grad_(), loss = replicas.model(x).sum();
    torch::autograd::grad({loss}, {x, replicas.weight}, {}, true, /*create_graph=*/true);
    // torch::autograd::grad() reduces no gradient, so it writes no .grad of the parameter.
    EXPECT_FALSE(replicas.weight.grad().defined());
    if (rank.rank() == 0) replicas.model(x).sum().backward();
    if (rank.rank() > 0) replicas.backward_of_nothing();
    rank.observe("gradient", replicas.weight.grad().clone());
    replicas.model.zero_grad();
    replicas.backward_of_nothing();
    EXPECT_TRUE(replicas.weight.grad().eq(0).all().item<bool>());
  });
  expect_same_on_all_ranks(run, "gradient");
}

MULTI_RANK_TEST(
    DdpReplica,
    ddp_calls_user_hooks_with_many_buckets_and_trains_parameters_that_a_user_overwrote) {
  run_ranks(world_size(), [](TestRank& rank) {
    ReplicatedNet one(rank), many(rank, 0, 50);
    int calls = 0;
    for (const at::Tensor& parameter : many.net->parameters()) {
      register_post_accumulate_grad_hook(parameter, [&calls, parameter] {
        parameter.grad().clamp_(-1e-3, 1e-3);
        ++calls;
      });
    }
    for (int step = 0; step < 3; ++step)
      many.step(step);
    EXPECT_EQ(calls, 3 * 101);
    many.backward();
    EXPECT_LE(many.weight.grad().abs().max().item<float>(), 1e-3F);
    // An evaluation on rank 0 only, which issues no collective.
    if (rank.rank() == 0) one.model(at::ones({1, 7}));
    torch::nn::utils::vector_to_parameters(at::ones({7 * 7 * 3 + 7 * 4}), one.net->parameters());
    one.step();
    EXPECT_FALSE(one.weight.eq(1).any().item<bool>())
        << "the step did not change the written values";
  });
}

at::Tensor penalized(Module& model, int microbatch, int microbatches, int step) {
  const at::Tensor x = batch_part(microbatch, microbatches, step, {5, 7}).requires_grad_();
  const at::Tensor y = model(x).square().mean();
  const auto gradient = torch::autograd::grad({y}, {x}, {}, std::nullopt, /*create_graph=*/true);
  return y + gradient[0].norm();
}

// A gradient that is a tensor of its own, as in one process, begins at a multiple of 64 bytes. A
// gradient in a bucket must do so too, because the address of an operand decides the last bits of
// at::dot().
MULTI_RANK_TEST(DdpReplica, every_gradient_of_ddp_begins_at_a_multiple_of_64_bytes) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const double bucket_cap_mb : {25.0, 0.0005}) {
      ReplicatedNet replicas(rank, bucket_cap_mb);
      replicas.backward();
      for (const auto& parameter : replicas.net->named_parameters())
        EXPECT_EQ(reinterpret_cast<uintptr_t>(parameter.value().grad().data_ptr()) % 64, 0U)
            << parameter.key();
    }
  });
}

MULTI_RANK_TEST(DdpReplica, a_training_with_a_gradient_penalty_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(world_size(), {{.name = "penalized", .loss = penalized}},
                              {train_replicated});
}

MULTI_RANK_TEST(DdpReplica, lbfgs_lowers_the_mean_loss_of_ddp_replicas) {
  run_ranks(world_size(), [](TestRank& rank) {
    ReplicatedNet replicas(rank);
    torch::optim::LBFGS optimizer(replicas.net->parameters(),
                                  torch::optim::LBFGSOptions(0.1).max_iter(5));
    const auto mean_loss = [&] {
      optimizer.zero_grad();
      const at::Tensor own = loss_of(*replicas.net, rank), mean = own.detach() / rank.world_size();
      own.backward();
      rank.communicator()->all_reduce(mean, kMetrics).wait();
      return mean;
    };
    const at::Tensor before = optimizer.step(mean_loss);
    EXPECT_LT(mean_loss().item<float>(), before.item<float>());
    replicas.model.state_dict();  // would throw if the parameters of the replicas differed
  });
}

struct SparseNet : Module {
  at::Tensor forward(at::Tensor x) override { return table(x); }
  torch::nn::Embedding table = register_module(
      "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 3).sparse(true)));
};

MULTI_RANK_TEST(DdpReplica, a_misuse_of_ddp_that_would_leave_gradients_unreduced_throws) {
  run_ranks(world_size(), [](TestRank& rank) {
    ReplicatedNet replicas(rank);
    const auto expect = [&](const auto& call, const char* says) {
      EXPECT_CONTAINS(error_of(call), says);
    };
    const auto& comm = rank.communicator();
    expect([&] { DistributedDataParallel again(*replicas.net, comm); },
           "is sharded or replicated by another");
    expect([&] { FullyShardedDataParallel again(*replicas.net, comm); }, "is replicated already");
    const ShardedNet sharded(rank);
    expect([&] { DistributedDataParallel again(*sharded.net, comm); },
           "is sharded or replicated by another");
    const auto net = block_net();
    expect([&] { DistributedDataParallel model(*net, comm, {.bucket_cap_mb = -1}); }, "0 or more");
    expect([&] { loss_of(*replicas.net, rank).backward({}, std::nullopt, /*create_graph=*/true); },
           "create_graph has to be off; torch::autograd::grad() reduces nothing");
    // A hook of the input runs an inner backward. At that time, all gradients of the outer backward
    // have been reduced.
    const at::Tensor x = at::ones({2, 7}).requires_grad_();
    bool inside = false;
    x.register_hook([&](const at::Tensor&) {
      const at::AutoGradMode with_gradients(true);
      if (!std::exchange(inside, true)) replicas.backward();
    });
    expect([&] { replicas.model(x).sum().backward(); },
           "whose gradient of the outer pass is reduced");
    expect([&] { replicas.optimizer->step(); }, "after a backward that threw, call zero_grad()");
    replicas.model.zero_grad();
    {
      const NoSync no_sync = replicas.model.no_sync();
      replicas.backward();
    }
    expect([&] { replicas.model.clip_grad_norm_(1); },
           "run the last backward before a step outside");
    replicas.net->register_module("late", std::make_shared<LayerBlock>());
    expect([&] { replicas.backward(); }, "late.linear.weight was registered after");
    expect([&] { replicas.model.state_dict(); }, "late.linear.weight was registered after");
    torch::manual_seed(1);
    SparseNet sparse;
    DistributedDataParallel model(sparse, comm);
    expect([&] { model(at::tensor({1, 2})).sum().backward(); }, "table.weight is sparse");
  });
}

}  // namespace
}  // namespace fsdp
