#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>

#include <library/misuse.h>

// Tests models that cannot be sharded. Some are refused when they are wrapped, and are not changed.
// For others the first step throws, because only the step shows what they do.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(RefusedModel);

// A model that registers a weight, and a row of the same weight as another parameter.
struct Overlapping : BlockNet {
  at::Tensor row = register_parameter("row", blocks[0]->linear->weight.detach()[1]);
};

// A model with a block in a torch::nn::Sequential, which calls the block's forward() directly, so
// the block's hooks do not run.
struct InSequential : Module {
  InSequential() {
    layers->push_back(std::make_shared<LayerBlock>());
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor x) override { return layers->forward(x); }
  torch::nn::Sequential layers;
};

// Expects that wrapping the model throws, and that the model can still be called.
void expect_not_sharded(Module& net, TestRank& rank, const char* says) {
  const auto shard = [&] { FullyShardedDataParallel model(net, rank.communicator()); };
  EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), says);
  net(at::ones({2, 7}));
}

MULTI_RANK_TEST(RefusedModel,
                wrapping_overlapping_parameters_throws_and_the_model_can_still_be_called) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    Overlapping net;
    expect_not_sharded(net, rank, "parameter b0.linear.weight and parameter row share memory");
  });
}

// With wrap_none(), the block in the torch::nn::Sequential is not a unit, so it needs no hooks, and
// the model can be sharded.
MULTI_RANK_TEST(RefusedModel,
                wrapping_a_unit_in_torchs_sequential_throws_and_the_model_can_still_be_called) {
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

MULTI_RANK_TEST(RefusedModel,
                wrapping_a_model_with_an_fp64_parameter_throws_and_in_fp32_the_model_trains) {
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

MULTI_RANK_TEST(RefusedModel, wrapping_a_sharded_model_again_throws_and_the_model_still_trains) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    const auto net = block_net();
    ShardedNet sharded(rank, adamw, net);
    const auto shard = [&] { FullyShardedDataParallel model(*net, rank.communicator()); };
    EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), "is sharded already");
    sharded.step();
  });
}

// A block in a module holder of TORCH_MODULE(). Such a holder calls forward() of its module
// directly, so the module's hooks do not run.
struct TorchBlockImpl : LayerBlock {};
TORCH_MODULE(TorchBlock);
struct HoldingNet : Module {
  at::Tensor forward(at::Tensor x) override { return block(x); }
  TorchBlock block = register_module("block", TorchBlock());
};

// A model with an embedding that has max_norm, so its forward writes to the gathered weight.
struct TableNet : Module {
  explicit TableNet(const torch::nn::EmbeddingOptions& options)
      : table(register_module("table", torch::nn::Embedding(options))) {}
  at::Tensor forward(at::Tensor ids) override { return table(ids); }
  torch::nn::Embedding table;
};

// Expects that the first step of the sharded model throws.
template <class Net>
void expect_no_step(Net& net, TestRank& rank, const at::Tensor& x, const char* says) {
  FullyShardedDataParallel model(net, rank.communicator());
  EXPECT_CONTAINS(error_of([&] { model(x).sum().backward(); }), says);
}

MULTI_RANK_TEST(RefusedModel, the_first_step_throws_if_a_unit_is_in_a_torch_module_holder) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    HoldingNet net;
    expect_no_step(net, rank, at::ones({2, 7}), "other causes are in docs/what_works.md");
  });
}

MULTI_RANK_TEST(RefusedModel, the_first_step_throws_if_a_weight_was_tied_by_assignment) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    RowOf<LayerBlock> net;
    net.blocks[1]->linear->weight = net.blocks[0]->linear->weight;
    expect_no_step(net, rank, at::ones({2, 7}),
                   "b0.linear.weight and 1 more of unit b0 are sharded now");
  });
}

MULTI_RANK_TEST(RefusedModel, the_first_step_throws_if_forward_writes_to_a_parameter) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    TableNet net(torch::nn::EmbeddingOptions(5, 3).max_norm(0.1));
    expect_no_step(net, rank, at::tensor({1, 2}),
                   "parameter table.weight of unit root was written to while it was gathered");
  });
}

MULTI_RANK_TEST(RefusedModel, the_first_step_throws_if_a_gradient_is_sparse) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    TableNet net(torch::nn::EmbeddingOptions(5, 3).sparse(true));
    expect_no_step(net, rank, at::tensor({1, 2}),
                   "the gradient of parameter table.weight is sparse");
  });
}

MULTI_RANK_TEST(RefusedModel, a_wrap_policy_that_selects_no_module_warns_on_rank_0) {
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
