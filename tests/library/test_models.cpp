#include <forward_method.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/rnn.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// Kinds of models and habits, each compared with one process bit by bit.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(AnyModel);

MULTI_RANK_TEST(AnyModel, may_have_frozen_and_trainable_parameters_in_one_unit) {
  expect_equal_to_one_process(world_size(), training_of([] {
                                const auto net = std::make_shared<BlockNet>();
                                net->blocks[0]->linear->weight.set_requires_grad(false);
                                for (const at::Tensor& parameter : net->blocks[1]->parameters())
                                  parameter.set_requires_grad(false);
                                return net;
                              }));
}

MULTI_RANK_TEST(AnyModel, may_be_cut_into_units_by_hand) {
  Training training = training_of<BlockNet>();
  training.options.wrap = [](Module& model) {
    auto& net = dynamic_cast<BlockNet&>(model);
    return std::vector<Module*>{net.blocks[0].get(), net.blocks[2].get()};
  };
  expect_equal_to_one_process(world_size(), training);
}

// Units inside units.
MULTI_RANK_TEST(AnyModel, may_be_cut_into_units_from_the_inside_out) {
  Training training = training_of<RowOf<BlockNet>>();
  training.options.wrap = [](Module& model) {
    for (const auto& module : model.modules(/*include_self=*/false))
      if (auto* unit = dynamic_cast<Module*>(module.get())) fully_shard(*unit);
    EXPECT_CONTAINS(error_of([&] { mean_square(model, 0, 1, 0); }),
                    "BlockNet: fully_shard(module)");
    return wrap_marked()(model);
  };
  expect_equal_to_one_process(world_size(), training, {train_sharded});
}

// Of a unit and of the root.
struct CodingNet : BlockNet {
  std::pair<at::Tensor, at::Tensor> encode(const at::Tensor& x) {
    const auto twice = [&] { return blocks[1]->forward_twice(x); };
    return {forward_method(*blocks[1], twice) * scale, x};
  }
};

MULTI_RANK_TEST(AnyModel, may_be_called_by_other_methods_than_forward) {
  Training training = training_of<CodingNet>();
  training.loss = [](Module& model, int part, int parts, int step) {
    auto& net = dynamic_cast<CodingNet&>(model);
    const at::Tensor x = batch_part(part, parts, step, {5, 7});
    const auto [code, same] = forward_method(net, [&] { return net.encode(x); });
    return (code + same).square().mean() + (step == 1 ? net(x).mean() : at::zeros({}));
  };
  expect_equal_to_one_process(world_size(), training);
}

MULTI_RANK_TEST(AnyModel, is_frozen_by_its_shards_too) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    auto named = model.named_parameters();
    named["b0.linear.bias"].set_requires_grad(false);
    mean_square(*net, rank.rank(), rank.world_size(), 0).backward();
    rank.observe("frozen", !net->blocks[0]->linear->bias.requires_grad() &&
                               !named["b0.linear.bias"].grad().defined());
    named["b0.linear.bias"].set_requires_grad(true);
    mean_square(*net, rank.rank(), rank.world_size(), 0).backward();
    rank.observe("unfrozen", named["b0.linear.bias"].grad().defined());
    net->blocks[1]->linear->bias.set_requires_grad(false);
    EXPECT_FALSE(model.named_parameters()["b1.linear.bias"].requires_grad());
  });
  expect_on_all_ranks(run, "frozen", true);
  expect_on_all_ranks(run, "unfrozen", true);
}

// Blocks that a rank leaves out in some steps. It still calls them, and their outputs require
// gradients: so all ranks gather alike.
struct SkippingBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override { return skips ? x * 1 : LayerBlock::forward(x); }
  bool skips{};
};
struct SkippingNet : RowOf<SkippingBlock> {
  SkippingNet() : RowOf(3) {}
  at::Tensor forward(at::Tensor x) override { return RowOf::forward(x * scale); }
  at::Tensor scale = register_parameter("scale", at::randn({7}));
};

MULTI_RANK_TEST(AnyModel, may_use_other_parameters_on_each_rank) {
  Training training = training_of<SkippingNet>();
  training.loss = [](Module& model, int part, int parts, int step) {
    auto& net = dynamic_cast<SkippingNet&>(model);
    for (size_t i = 0; i < net.blocks.size(); ++i)
      net.blocks[i]->skips = (part + step + static_cast<int>(i)) % 2 == 1;
    return mean_square(model, part, parts, step);
  };
  expect_equal_to_one_process(world_size(), training);
}

// Its input requires no gradient, so on a rank that leaves it out its output requires none.
MULTI_RANK_TEST(AnyModel, may_not_begin_with_a_unit_that_some_ranks_leave_out) {
  if (world_size() == 1) return;
  const RankRun run = try_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    SkippingNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    net.blocks[0]->skips = rank.rank() == 1;
    const at::Tensor x = batch_part(rank.rank(), rank.world_size(), 0, {5, 7});
    (*net.blocks[1])((*net.blocks[0])(x)).sum().backward();
  });
  expect_error_says(run.failure(), "differs between ranks");
}

MULTI_RANK_TEST(AnyModel, gives_zeros_to_a_parameter_that_nobody_uses) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    SkippingNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    auto named = model.named_parameters();
    net.blocks[1]->skips = true;
    mean_square(net, rank.rank(), rank.world_size(), 0).backward();
    const at::Tensor gradient = named["b1.linear.weight"].grad();
    rank.observe("zeros", gradient.defined() && gradient.eq(0).all().item<bool>());
  });
  expect_on_all_ranks(run, "zeros", true);
}

struct ReusingNet : BlockNet {
  at::Tensor forward(at::Tensor x) override {
    for (const size_t i : {0, 1, 0, 2, 0})
      x = (*blocks[i])(x);
    return x * scale;
  }
};

MULTI_RANK_TEST(AnyModel, may_call_a_module_several_times) {
  expect_equal_to_one_process(world_size(), training_of<ReusingNet>());
}

struct ConvBlock : Module {
  ConvBlock(int64_t in, int64_t out) {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3)));
    norm = register_module("norm", torch::nn::BatchNorm2d(out));
  }
  at::Tensor forward(at::Tensor x) override { return norm(conv(x)).relu(); }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
};
struct ConvNet : Module {
  ConvNet() {
    first = register_module("first", std::make_shared<ConvBlock>(3, 5));
    second = register_module("second", std::make_shared<ConvBlock>(5, 4));
  }
  at::Tensor forward(at::Tensor x) override { return (*second)((*first)(x)).mean({2, 3}); }
  std::shared_ptr<ConvBlock> first, second;
};

MULTI_RANK_TEST(AnyModel, may_be_of_convolutions_with_batch_norm) {
  Training training = training_of<ConvNet>();
  training.loss = [](Module& model, int part, int parts, int step) {
    return model(batch_part(part, parts, step, {2, 3, 8, 8})).square().mean();
  };
  expect_equal_to_one_process(world_size(), training);
}

struct RecurrentBlock : Module {
  RecurrentBlock() {
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(7, 6).num_layers(2)));
  }
  at::Tensor forward(at::Tensor x) override { return std::get<0>(lstm(x)); }
  torch::nn::LSTM lstm{nullptr};
};
struct RecurrentNet : Module {
  RecurrentNet() {
    block = register_module("block", std::make_shared<RecurrentBlock>());
    head = register_module("head", torch::nn::Linear(6, 2));
  }
  at::Tensor forward(at::Tensor x) override { return head((*block)(x)); }
  std::shared_ptr<RecurrentBlock> block;
  torch::nn::Linear head{nullptr};
};

MULTI_RANK_TEST(AnyModel, may_be_recurrent) {
  Training training = training_of<RecurrentNet>();
  training.loss = [](Module& model, int part, int parts, int step) {
    return model(batch_part(part, parts, step, {4, 3, 7})).square().mean();
  };
  expect_equal_to_one_process(world_size(), training);
}

// The second output is a member.
struct SideBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor y = LayerBlock::forward(x);
    side = y.square().mean();
    return y;
  }
  at::Tensor side;
};
struct SideNet : Module {
  SideNet() {
    first = register_module("first", std::make_shared<SideBlock>());
    second = register_module("second", std::make_shared<LayerBlock>());
  }
  at::Tensor forward(at::Tensor x) override { return (*second)((*first)(x)); }
  std::shared_ptr<SideBlock> first;
  std::shared_ptr<LayerBlock> second;
};

MULTI_RANK_TEST(AnyModel, may_have_side_outputs_in_its_loss) {
  Training training = training_of<SideNet>();
  training.loss = [](Module& model, int part, int parts, int step) {
    const at::Tensor loss = mean_square(model, part, parts, step);
    return loss + 0.3 * std::exchange(dynamic_cast<SideNet&>(model).first->side, {});
  };
  expect_equal_to_one_process(world_size(), training);
}

// The side output lies on no way to the output.
struct AsideBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    side = linear(linear(x)).sum();
    return LayerBlock::forward(x);
  }
  at::Tensor side;
};

MULTI_RANK_TEST(AnyModel, names_the_unit_if_the_loss_is_a_side_output_alone) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    RowOf<AsideBlock> net(1);
    FullyShardedDataParallel sharded(net, rank.communicator());
    net(batch_part(0, 1, 0, {5, 7}));
    EXPECT_CONTAINS(error_of([&] { net.blocks[0]->side.backward(); }),
                    "of unit b0 are sharded now");
  });
}

// Its outputs are changed in place by who called it.
struct InPlaceNet : BlockNet {
  at::Tensor forward(at::Tensor x) override {
    for (const auto& block : blocks)
      x = (*block)(x).relu_();
    return x.mul(scale);
  }
};
struct ViewBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override { return LayerBlock::forward(x).view({-1, 7}); }
};
struct InPlaceViewNet : RowOf<ViewBlock> {
  at::Tensor forward(at::Tensor x) override {
    for (const auto& block : blocks)
      x = (*block)(x).mul_(2);
    return x;
  }
};

MULTI_RANK_TEST(AnyModel, may_change_outputs_in_place) {
  expect_equal_to_one_process(world_size(), training_of<InPlaceNet>());
  expect_equal_to_one_process(world_size(), training_of<InPlaceViewNet>());
}

}  // namespace
}  // namespace fsdp
