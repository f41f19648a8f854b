#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>

#include <library/misuse.h>

// Models that can't be sharded: some are refused when they are made, and are as they were; others
// at their first step, because what they do is seen only then.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(RefusedModels);

// A weight, and a part of it registered too.
struct Overlapping : BlockNet {
  at::Tensor row = register_parameter("row", blocks[0]->linear->weight.detach()[1]);
};

// A unit that a container of LibTorch calls by forward(), which runs no hooks.
struct InSequential : Module {
  InSequential() {
    layers->push_back(std::make_shared<LayerBlock>());
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor x) override { return layers->forward(x); }
  torch::nn::Sequential layers;
};

// That sharding the model is refused, and leaves it as it was.
void expect_not_sharded(Module& net, TestRank& rank, const char* says) {
  const auto shard = [&] { FullyShardedDataParallel model(net, rank.communicator()); };
  EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), says);
  net(at::ones({2, 7}));
}

MULTI_RANK_TEST(RefusedModels, one_with_two_parameters_on_one_memory_is_as_it_was) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    Overlapping net;
    expect_not_sharded(net, rank, "parameter b0.linear.weight and parameter row share memory");
  });
}

// Where nothing is called past a hook, it may be sharded.
MULTI_RANK_TEST(RefusedModels, one_with_a_unit_in_torchs_sequential_is_as_it_was) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    InSequential net;
    expect_not_sharded(
        net, rank,
        "layers.0 (fsdp::LayerBlock) lies in a torch::nn::Sequential, which calls forward() and "
        "so runs no hooks; use an fsdp::Sequential");
    FullyShardedDataParallel model(net, rank.communicator(), {.wrap = wrap_none()});
    loss_of(net, rank).backward();
  });
}

MULTI_RANK_TEST(RefusedModels, one_with_a_parameter_that_is_not_fp32_is_as_it_was) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    const auto net = block_net();
    net->blocks[1]->to(at::kDouble);
    const auto shard = [&] { FullyShardedDataParallel model(*net, rank.communicator()); };
    EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), "b1.linear.weight");
    net->blocks[1]->to(at::kFloat);
    net->forward(at::ones({2, 7}));
    ShardedNet(rank, adamw, net).step();
  });
}

MULTI_RANK_TEST(RefusedModels, one_that_is_sharded_already_goes_on) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    const auto net = block_net();
    ShardedNet sharded(rank, adamw, net);
    const auto shard = [&] { FullyShardedDataParallel model(*net, rank.communicator()); };
    EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), "is sharded already");
    sharded.step();
  });
}

// A holder of LibTorch's: its call is forward().
struct TorchBlockImpl : LayerBlock {};
TORCH_MODULE(TorchBlock);
struct HoldingNet : Module {
  at::Tensor forward(at::Tensor x) override { return block(x); }
  TorchBlock block = register_module("block", TorchBlock());
};

// What writes to a weight in forward writes to what was gathered.
struct TableNet : Module {
  explicit TableNet(const torch::nn::EmbeddingOptions& options)
      : table(register_module("table", torch::nn::Embedding(options))) {}
  at::Tensor forward(at::Tensor ids) override { return table(ids); }
  torch::nn::Embedding table;
};

// That the first step of the sharded model is refused.
template <class Net>
void expect_no_step(Net& net, TestRank& rank, const at::Tensor& x, const char* says) {
  FullyShardedDataParallel model(net, rank.communicator());
  EXPECT_CONTAINS(error_of([&] { model(x).sum().backward(); }), says);
}

MULTI_RANK_TEST(RefusedModels, one_with_a_unit_that_torch_module_holds_can_make_no_step) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    HoldingNet net;
    expect_no_step(net, rank, at::ones({2, 7}), "other causes are in docs/what_works.md");
  });
}

MULTI_RANK_TEST(RefusedModels, one_with_a_weight_tied_by_assignment_can_make_no_step) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    RowOf<LayerBlock> net;
    net.blocks[1]->linear->weight = net.blocks[0]->linear->weight;
    expect_no_step(net, rank, at::ones({2, 7}),
                   "b0.linear.weight and 1 more of unit b0 are sharded now");
  });
}

MULTI_RANK_TEST(RefusedModels, one_whose_forward_writes_to_a_parameter_can_make_no_step) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    TableNet net(torch::nn::EmbeddingOptions(5, 3).max_norm(0.1));
    expect_no_step(net, rank, at::tensor({1, 2}),
                   "parameter table.weight of unit root was written to while it was gathered");
  });
}

MULTI_RANK_TEST(RefusedModels, one_with_sparse_gradients_can_make_no_step) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    TableNet net(torch::nn::EmbeddingOptions(5, 3).sparse(true));
    expect_no_step(net, rank, at::tensor({1, 2}),
                   "the gradient of parameter table.weight is sparse");
  });
}

MULTI_RANK_TEST(RefusedModels, one_of_which_a_policy_chose_nothing_is_sharded_with_a_warning) {
  run_ranks(world_size(), [](TestRank& rank) {
    WarningsOf warnings;
    torch::manual_seed(1);
    TableNet first(torch::nn::EmbeddingOptions(5, 3)), second(torch::nn::EmbeddingOptions(5, 3));
    FullyShardedDataParallel by_default(first, rank.communicator());
    const std::string said = std::exchange(warnings.texts, "");
    EXPECT_EQ(said.find("chose no module") != std::string::npos, rank.rank() == 0);
    FullyShardedDataParallel on_purpose(second, rank.communicator(), {.wrap = wrap_none()});
    EXPECT_EQ(warnings.texts, "");
  });
}

}  // namespace
}  // namespace fsdp
