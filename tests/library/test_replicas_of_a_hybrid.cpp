#include <optim/p_norm.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// Tests DistributedDataParallel over a communicator of create_hybrid(). A collective of this
// communicator reaches only one replica, so values that all ranks must share are also sent between
// the replicas.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(HybridReplica);

// Runs `body` for each way to divide the ranks into replicas, and compares what it observes with
// what one process observes. With up to 4 ranks, the sum within each replica, followed by the sum
// over replicas, is the same tree as the sum over all ranks.
void expect_in_each_strategy(
    int world_size,
    const std::function<void(TestRank&, const std::shared_ptr<Communicator>&)>& body,
    const RankRun& expected) {
  for (int shards = 1; shards <= world_size; ++shards) {
    if (world_size % shards != 0) continue;
    SCOPED_TRACE(std::to_string(shards) + " ranks of a replica");
    expect_as(run_ranks(world_size, [&](TestRank& rank) { body(rank, rank.hybrid(shards)); }),
              expected);
  }
}

MULTI_RANK_TEST(HybridReplica, ddp_gradients_are_the_mean_over_the_ranks_of_all_replicas) {
  const Training training{.name = "hybrid", .optimizer = momentum};
  expect_in_each_strategy(
      world_size(),
      [&](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
        torch::manual_seed(2);
        train_parallel<DistributedDataParallel>(
            rank, comm, training, DistributedDataParallelOptions{.bucket_cap_mb = 0.0005});
      },
      run_oracle([&](TestRank& rank) {
        torch::manual_seed(2);
        train_in_one_process(rank, training, world_size());
      }));
}

// Runs one backward in no_sync() and one outside of it. Compares the norm of the mean gradients
// with that of one process.
MULTI_RANK_TEST(HybridReplica,
                clipping_and_accumulation_use_the_gradients_of_the_ranks_of_all_replicas) {
  expect_in_each_strategy(
      world_size(),
      [](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
        const auto net = block_net();
        DistributedDataParallel model(*net, comm);
        {
          const NoSync no_sync = model.no_sync();
          loss_of(*net, rank, 0).backward();
        }
        loss_of(*net, rank, 1).backward();
        rank.observe("norm", model.clip_grad_norm_(1e-3));
        rank.observe("scale", net->scale.grad());
      },
      run_oracle([&](TestRank& rank) {
        const auto net = block_net();
        const std::vector<at::Tensor> parameters = net->parameters();
        backward_of_parts(parameters, world_size(), [&](int part) {
          mean_square(*net, part, world_size(), 0).backward();
          return mean_square(*net, part, world_size(), 1);
        });
        std::vector<at::Tensor> gradients;
        for (const at::Tensor& parameter : parameters)
          gradients.push_back(parameter.grad());
        const double norm = p_norm(gradients, 2);
        rank.observe("norm", norm);
        rank.observe("scale", net->scale.grad() * (1e-3 / (norm + 1e-6)));
      }));
}

struct NetWithBuffers : BlockNet {
  at::Tensor mean = register_buffer("mean", at::zeros({3}));
  at::Tensor count = register_buffer("count", at::zeros({2}, at::kLong));
};

// Each rank begins with other values. All ranks must get the parameters and buffers of global rank
// 0, and average_buffers() must give all ranks the mean of `mean`.
MULTI_RANK_TEST(HybridReplica,
                all_replicas_get_the_values_of_global_rank_0_and_the_mean_of_buffers) {
  const auto net_of = [](int rank) {
    torch::manual_seed(static_cast<uint64_t>(rank) + 1);
    const auto net = std::make_shared<NetWithBuffers>();
    net->mean.fill_(rank + 1);
    net->count.fill_(rank + 1);
    return net;
  };
  expect_in_each_strategy(
      world_size(),
      [&](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
        const auto net = net_of(rank.rank());
        DistributedDataParallel model(*net, comm,
                                      {.sync_module_states = true, .broadcast_buffers = true});
        rank.observe("parameter", net->scale.detach());
        rank.observe("buffer", net->mean);
        net->mean.fill_(rank.rank() + 5);
        model(at::ones({2, 7}));
        rank.observe("buffer after a forward", net->mean);
        net->mean.fill_(rank.rank());
        net->count.fill_(rank.rank() + 7);
        model.average_buffers();
        rank.observe("mean of the ranks", net->mean);
        rank.observe("count of rank 0", net->count);
        // state_dict() throws if its values differ between ranks.
        model.load_state_dict(model.state_dict());
      },
      run_oracle([&](TestRank& rank) {
        rank.observe("parameter", net_of(0)->scale.detach());
        rank.observe("buffer", at::full({3}, 1.F));
        rank.observe("buffer after a forward", at::full({3}, 5.F));
        rank.observe("mean of the ranks", at::full({3}, static_cast<float>(world_size() - 1) / 2));
        rank.observe("count of rank 0", at::full({2}, 7, at::kLong));
      }));
}

MULTI_RANK_SUITE_ON(DivergedHybridReplica, 4);

// Ranks 0 and 1 are one replica and have equal values. Ranks 2 and 3 are the other replica and have
// other values.
MULTI_RANK_TEST(DivergedHybridReplica, an_error_names_the_parameter_that_differs_between_replicas) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto& comm = rank.hybrid(2);
    const auto other = block_net(2, rank.rank() < 2 ? 1 : 2);
    EXPECT_CONTAINS(error_of([&] { DistributedDataParallel model(*other, comm); }),
                    "ranks differ in the values of parameter");
    const auto net = block_net();
    DistributedDataParallel model(*net, comm);
    net->scale.data().add_(rank.rank() < 2 ? 0 : 1);
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { loss_of(*net, rank).backward(); }, [&] { model.state_dict(); }})
      EXPECT_CONTAINS(error_of(call), "ranks differ in the values of parameter scale");
  });
}

}  // namespace
}  // namespace fsdp
