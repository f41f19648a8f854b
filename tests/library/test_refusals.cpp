#include <sharded_optimizer.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/serialize.h>

#include <sstream>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// What goes wrong in silence, or by a signal, with fully_shard() alone.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(Refusals);

// On each rank: a sharded BlockNet.
using Body =
    std::function<void(TestRank& rank, BlockNet& net, FullyShardedDataParallel<BlockNet>&)>;
void on_sharded_nets(int world_size, const Body& body) {
  run_ranks(world_size, [&](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    body(rank, *net, model);
  });
}

const char* const kSharded =
    " are sharded now: call the module (module(x), not module.forward(x)), "
    "or use summon_full_params()";
const std::string kOfB0 =
    std::string("parameter b0.linear.weight and 1 more of unit b0") + kSharded;

MULTI_RANK_TEST(Refusals, every_use_of_a_sharded_parameter_names_its_unit_and_the_way_out) {
  on_sharded_nets(world_size(), [](TestRank& rank, BlockNet& net, auto&) {
    at::Tensor weight = net.blocks[0]->linear->weight;
    const at::Tensor x = at::ones({2, 7});
    EXPECT_CONTAINS(error_of([&] { weight.square().sum(); }), kOfB0);
    EXPECT_CONTAINS(error_of([&] { std::ostringstream() << weight; }), kOfB0);
    EXPECT_CONTAINS(error_of([&] { weight[0][0].item<float>(); }), kOfB0);
    EXPECT_CONTAINS(error_of([&] { torch::nn::init::zeros_(weight); }), kOfB0);
    EXPECT_CONTAINS(error_of([&] { net.blocks[0]->forward(x); }), kOfB0);
    EXPECT_CONTAINS(error_of([&] { net.blocks[0]->forward_twice(x); }), kOfB0);
    EXPECT_CONTAINS(error_of([&] { net.to(at::kDouble); }), kOfB0);
    EXPECT_CONTAINS(error_of([&] { net.scale.sum(); }), "parameter scale of unit root");
    net(x);  // and the model works on
  });
}

MULTI_RANK_TEST(Refusals, saving_the_module_names_the_unit) {
  on_sharded_nets(world_size(), [](TestRank&, BlockNet& net, auto&) {
    const auto save = [&] {
      torch::serialize::OutputArchive archive;
      net.save(archive);
      std::ostringstream text;
      archive.save_to(text);
    };
    EXPECT_CONTAINS(error_of(save), "sharded now");
    std::ostringstream text;
    EXPECT_CONTAINS(error_of([&] { torch::save(net.parameters(), text); }), "sharded now");
  });
}

MULTI_RANK_TEST(Refusals, loading_into_the_module_names_the_unit) {
  on_sharded_nets(world_size(), [](TestRank& rank, BlockNet& net, auto&) {
    std::stringstream text;
    {
      torch::serialize::OutputArchive archive;
      block_net()->save(archive);
      archive.save_to(text);
    }
    torch::serialize::InputArchive archive;
    archive.load_from(text);
    EXPECT_CONTAINS(error_of([&] { net.load(archive); }), "sharded now");
    loss_of(net, rank);
  });
}

MULTI_RANK_TEST(Refusals, a_parameter_that_was_replaced_is_noticed_by_the_next_call) {
  on_sharded_nets(world_size(), [](TestRank& rank, BlockNet& net, auto& model) {
    at::Tensor weight = net.blocks[1]->linear->weight;
    weight.set_data(at::ones({7, 7}));
    EXPECT_CONTAINS(error_of([&] { loss_of(net, rank); }),
                    "b1.linear.weight of unit b1 was replaced");
    EXPECT_CONTAINS(error_of([&] { model.state_dict(); }), "was replaced");
  });
}

MULTI_RANK_TEST(Refusals, an_optimizer_over_the_modules_parameters_says_which_it_takes) {
  on_sharded_nets(world_size(), [](TestRank& rank, BlockNet& net, auto& model) {
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    torch::optim::AdamW adamw(net.parameters(), torch::optim::AdamWOptions(0.1));
    for (int step = 0; step < 2; ++step) {
      sgd.zero_grad();
      loss_of(net, rank).backward();
      EXPECT_CONTAINS(error_of([&] { sgd.step(); }), "model.parameters()");
      EXPECT_CONTAINS(error_of([&] { adamw.step(); }), "model.parameters()");
      EXPECT_CONTAINS(error_of([&] { torch::nn::utils::clip_grad_norm_(net.parameters(), 1.0); }),
                      "model.clip_grad_norm_()");
    }
    model.zero_grad();
    EXPECT_CONTAINS(error_of([&] { sgd.step(); }), "model.parameters()");
  });
}

MULTI_RANK_TEST(Refusals, of_two_optimizers_the_one_without_gradients_says_so) {
  on_sharded_nets(world_size(), [](TestRank& rank, BlockNet& net, auto& model) {
    const auto optimizer = make_sharded_optimizer(model.units(), {{"", {}}}, rank.communicator());
    loss_of(net, rank).backward();
    optimizer->step();
    optimizer->zero_grad();
    model.parameters();  // from now on gradients go to them
    loss_of(net, rank).backward();
    EXPECT_CONTAINS(error_of([&] { optimizer->step(); }), "has no gradient");
  });
}

MULTI_RANK_TEST(Refusals, backward_is_not_differentiated) {
  on_sharded_nets(world_size(), [](TestRank& rank, BlockNet& net, auto& model) {
    const auto backward = [&](const at::Tensor& loss) {
      loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    };
    const at::Tensor loss = loss_of(net, rank);
    EXPECT_CONTAINS(error_of([&] { backward(loss); }), "create_graph has to be off");
    const at::Tensor x = batch_part(0, 1, 0, {5, 7}).requires_grad_();
    const at::Tensor sum = net(x).sum();
    EXPECT_CONTAINS(
        error_of([&] { torch::autograd::grad({sum}, {x}, {}, true, /*create_graph=*/true); }),
        "create_graph has to be off");
  });
}

MULTI_RANK_TEST(Refusals, shards_that_changed_after_forward_are_noticed_by_backward) {
  on_sharded_nets(world_size(), [](TestRank& rank, BlockNet& net, auto& model) {
    const auto optimizer = adamw(model.parameters());
    loss_of(net, rank).backward();
    const at::Tensor loss = loss_of(net, rank);
    optimizer->step();
    EXPECT_CONTAINS(error_of([&] { loss.backward(); }), "was changed since its forward");
  });
}

MULTI_RANK_TEST(Refusals, a_model_is_sharded_once) {
  on_sharded_nets(world_size(), [](TestRank& rank, BlockNet& net, auto&) {
    const auto shard = [&] { FullyShardedDataParallel again(net, rank.communicator()); };
    EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), "is sharded already");
    loss_of(net, rank).backward();  // the model is as it was
  });
}

// A weight, and a part of it registered too.
struct Overlapping : Module {
  Overlapping() {
    weight = register_parameter("weight", at::randn({4, 4}));
    row = register_parameter("row", weight.detach()[1]);
  }
  at::Tensor forward(at::Tensor x) override { return x.matmul(weight) + row; }
  at::Tensor weight, row;
};

MULTI_RANK_TEST(Refusals, two_parameters_may_not_share_memory) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    Overlapping net;
    const auto shard = [&] { FullyShardedDataParallel model(net, rank.communicator()); };
    EXPECT_CONTAINS(error_of<std::invalid_argument>(shard),
                    "parameter row and parameter weight share memory");
    net(at::ones({4}));  // the model is as it was
  });
}

MULTI_RANK_TEST(Refusals, a_model_of_another_dtype_stays_as_it_was) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    net->blocks[1]->to(at::kDouble);
    const auto shard = [&] { FullyShardedDataParallel model(*net, rank.communicator()); };
    EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), "b1.linear.weight");
    net->blocks[1]->to(at::kFloat);
    net->forward(at::ones({2, 7}));
    FullyShardedDataParallel model(*net, rank.communicator());
    loss_of(*net, rank).backward();
  });
}

MULTI_RANK_TEST(Refusals, to_call_the_model_inside_summon_full_params_is_one) {
  on_sharded_nets(world_size(), [](TestRank& rank, BlockNet& net, auto& model) {
    const auto call = [&] { model.summon_full_params([&] { loss_of(net, rank); }); };
    EXPECT_CONTAINS(error_of(call), "called inside summon_full_params()");
    loss_of(net, rank).backward();
  });
}

// A unit that a container of LibTorch calls by forward(), which runs no hooks.
struct InSequential : Module {
  InSequential() {
    layers->push_back(std::make_shared<LayerBlock>());
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor x) override { return layers->forward(x); }
  torch::nn::Sequential layers;
};

MULTI_RANK_TEST(Refusals, a_unit_in_a_torch_sequential_is_refused_before_the_model_changes) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    InSequential net;
    const auto shard = [&](const WrapPolicy& wrap) {
      FullyShardedDataParallel model(net, rank.communicator(), {.wrap = wrap});
    };
    EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { shard(wrap_blocks()); }),
                    "layers.0 (fsdp::LayerBlock) lies in a torch::nn::Sequential");
    net(at::ones({2, 7}));
    shard(wrap_none());  // then nothing is called past a hook
    loss_of(net, rank).backward();
  });
}

// A holder of LibTorch's: its call is forward().
struct TorchBlockImpl : LayerBlock {};
TORCH_MODULE(TorchBlock);

struct HoldingNet : Module {
  HoldingNet() : block(register_module("block", TorchBlock())) {}
  at::Tensor forward(at::Tensor x) override { return block(x); }
  TorchBlock block;
};

MULTI_RANK_TEST(Refusals, a_unit_that_torch_module_holds_is_told_of_by_its_first_call) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    HoldingNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    EXPECT_CONTAINS(error_of([&] {
                      net(at::ones({2, 7}));
                    }),
                    "other causes are in docs/what_works.md");
  });
}

struct Unwrapped : Module {
  Unwrapped() : linear(register_module("linear", torch::nn::Linear(3, 3))) {}
  at::Tensor forward(at::Tensor x) override { return linear(x); }
  torch::nn::Linear linear;
};

MULTI_RANK_TEST(Refusals, a_policy_that_chose_nothing_warns_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    WarningsOf warnings;
    torch::manual_seed(1);
    Unwrapped first, second;
    FullyShardedDataParallel by_default(first, rank.communicator());
    const std::string said = std::exchange(warnings.texts, "");
    EXPECT_EQ(said.find("chose no module") != std::string::npos, rank.rank() == 0);
    FullyShardedDataParallel on_purpose(second, rank.communicator(), {.wrap = wrap_none()});
    EXPECT_EQ(warnings.texts, "");
  });
}

MULTI_RANK_SUITE_ON(RanksThatDiffer, 2, 3);

// What the constructor says if every rank builds its own.
void expect_difference(int world_size,
                       const std::function<std::shared_ptr<Module>(int rank)>& build,
                       const std::string& says) {
  run_ranks(world_size, [&](TestRank& rank) {
    const auto net = build(rank.rank());
    const auto shard = [&] { FullyShardedDataParallel model(*net, rank.communicator()); };
    const auto replicate = [&] { DistributedDataParallel model(*net, rank.communicator()); };
    EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), says);
    EXPECT_CONTAINS(error_of<std::invalid_argument>(replicate), says);
  });
}

MULTI_RANK_TEST(RanksThatDiffer, in_seed_depth_shape_or_what_is_frozen_are_named) {
  const auto seed = [](int rank) { return block_net(3, rank == 1 ? 2 : 1); };
  expect_difference(world_size(), seed, "ranks differ in the values of parameter scale: ");
  const auto depth = [](int rank) { return block_net(rank == 1 ? 2 : 3); };
  expect_difference(world_size(), depth,
                    "ranks differ in what they have: parameter b2.linear.weight on rank");
  const auto shape = [](int rank) {
    torch::manual_seed(1);
    return std::make_shared<BlockNet>(1, rank == 0 ? 5 : 6);
  };
  expect_difference(world_size(), shape, "ranks differ in parameter scale: Float [5] on rank 0, ");
  const auto frozen = [](int rank) {
    const auto net = block_net();
    net->scale.set_requires_grad(rank != 1);
    return net;
  };
  expect_difference(world_size(), frozen, "ranks differ in parameter scale: trainable on rank");
}

MULTI_RANK_TEST(RanksThatDiffer, in_units_or_options_are_named) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto expect = [&](const FullyShardedDataParallelOptions& of_others, const char* says) {
      const auto net = block_net();
      const auto options = rank.rank() == 0 ? FullyShardedDataParallelOptions() : of_others;
      const auto shard = [&] {
        FullyShardedDataParallel model(*net, rank.communicator(), options);
      };
      EXPECT_CONTAINS(error_of<std::invalid_argument>(shard), says);
    };
    expect({.wrap = wrap_none()}, "ranks differ in unit root: scale on rank 0, scale b0.linear");
    expect({.limit = 3}, "ranks differ in .limit: 2 on rank 0, 3 on rank");
    expect({.reshard_after_forward = false}, "ranks differ in .reshard_after_forward: ");
  });
}

}  // namespace
}  // namespace fsdp
