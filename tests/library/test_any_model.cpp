#include <checkpoint_activations.h>
#include <forward_method.h>
#include <nn/random_scope.h>
#include <sequential.h>
#include <sharded_optimizer.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/transformerlayer.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// Tests kinds of models, and models that are used in unusual ways. Most tests compare a training
// bit by bit with one process.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(AnyModel);

WrapPolicy first_and_last_block() {
  return [](Module& model) {
    auto& net = dynamic_cast<BlockNet&>(model);
    return std::vector<Module*>{net.blocks.front().get(), net.blocks.back().get()};
  };
}

// A model with a method encode() besides forward(). encode() is a forward of the root and of the
// unit b1, because both run it through forward_method().
struct CodingNet : BlockNet {
  std::pair<at::Tensor, at::Tensor> encode(const at::Tensor& x) {
    const auto twice = [&] { return blocks[1]->forward_twice(x); };
    return {forward_method(*blocks[1], twice) * scale, x};
  }
};
at::Tensor loss_of_encode(Module& model, int microbatch, int microbatches, int step) {
  auto& net = dynamic_cast<CodingNet&>(model);
  const at::Tensor x = batch_part(microbatch, microbatches, step, {5, 7});
  const auto [code, same] = forward_method(net, [&] { return net.encode(x); });
  return (code + same).square().mean() + (step == 1 ? net(x).mean() : at::zeros({}));
}

// A block whose parameters a rank does not use in some steps. The rank still calls the block, and
// the block's output requires a gradient, so all ranks issue the same all-gathers.
struct SkippingBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override { return skips ? x * 1 : LayerBlock::forward(x); }
  bool skips{};
};
struct SkippingNet : RowOf<SkippingBlock> {
  SkippingNet() : RowOf(3) {}
  at::Tensor forward(at::Tensor x) override { return RowOf::forward(x * scale); }
  at::Tensor scale = register_parameter("scale", at::randn({7}));
};
at::Tensor loss_of_some_blocks(Module& model, int microbatch, int microbatches, int step) {
  auto& net = dynamic_cast<SkippingNet&>(model);
  for (size_t i = 0; i < net.blocks.size(); ++i)
    net.blocks[i]->skips = (microbatch + step + static_cast<int>(i)) % 2 == 1;
  return mean_square(model, microbatch, microbatches, step);
}

// A block that stores a second output in a member.
struct SideBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor y = LayerBlock::forward(x);
    side = y.square().mean();
    return y;
  }
  at::Tensor side;
};
at::Tensor loss_with_side_outputs(Module& model, int microbatch, int microbatches, int step) {
  at::Tensor loss = mean_square(model, microbatch, microbatches, step);
  for (const auto& block : dynamic_cast<RowOf<SideBlock>&>(model).blocks)
    loss = loss + 0.3 * std::exchange(block->side, {});
  return loss;
}

// A model whose block b1 has a hook that throws. Its forward() catches the exception and continues
// without this block.
struct CatchingNet : BlockNet {
  CatchingNet() {
    blocks[1]->register_forward_pre_hook(
        [](Module&, const at::Tensor&) -> at::Tensor { throw std::domain_error("not today"); });
  }
  at::Tensor forward(at::Tensor x) override {
    for (const auto& block : blocks) {
      try {
        x = (*block)(x * scale);
      } catch (const std::domain_error&) {
      }
    }
    return x * scale;
  }
};

// A model that changes the outputs of its blocks in place.
template <class Block>
struct InPlaceNet : RowOf<Block> {
  at::Tensor forward(at::Tensor x) override {
    for (const auto& block : this->blocks)
      x = (*block)(x).relu_();
    return x;
  }
};
struct ViewBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override { return LayerBlock::forward(x).view({-1, 7}); }
};

struct ConvBlock : Sequential {
  ConvBlock(int64_t in, int64_t out)
      : Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3)),
                   torch::nn::BatchNorm2d(out), torch::nn::ReLU()) {}
};
std::shared_ptr<Module> convolutions() {
  return std::make_shared<Sequential>(std::make_shared<ConvBlock>(3, 5),
                                      std::make_shared<ConvBlock>(5, 4));
}

// A block with a layer of LibTorch that has submodules of its own.
struct EncoderBlock : Module {
  at::Tensor forward(at::Tensor x) override { return layer(x); }
  torch::nn::TransformerEncoderLayer layer = register_module(
      "layer", torch::nn::TransformerEncoderLayer(
                   torch::nn::TransformerEncoderLayerOptions(6, 2).dim_feedforward(5).dropout(0)));
};

struct DropBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override { return drop(LayerBlock::forward(x)); }
  torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.5));
};
std::shared_ptr<Module> checkpointed_drop_out() {
  const auto net = std::make_shared<RowOf<DropBlock>>(3);
  for (const auto& block : net->blocks)
    checkpoint_activations(*block);
  return net;
}
at::Tensor loss_of_drop_out(Module& model, int microbatch, int microbatches, int step) {
  const RandomScope random(c10::kCPU, /*seed=*/1, step, microbatch);
  return mean_square(model, microbatch, microbatches, step);
}

MULTI_RANK_TEST(AnyModel, a_model_with_units_chosen_by_hand_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(
      world_size(), {{.name = "units by hand", .options = {.wrap = first_and_last_block()}}});
}

MULTI_RANK_TEST(AnyModel,
                a_model_with_tiny_odd_and_shared_parameters_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(
      world_size(), {{.name = "tiny, odd and shared parameters", .build = built<TinyNet>}});
}

MULTI_RANK_TEST(AnyModel,
                a_model_called_by_other_methods_than_forward_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(
      world_size(),
      {{.name = "other methods than forward", .build = built<CodingNet>, .loss = loss_of_encode}});
}

MULTI_RANK_TEST(AnyModel,
                a_model_with_parameters_unused_on_some_ranks_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(world_size(), {{.name = "other parameters on each rank",
                                              .build = built<SkippingNet>,
                                              .loss = loss_of_some_blocks}});
}

MULTI_RANK_TEST(AnyModel,
                a_model_whose_loss_has_side_outputs_of_blocks_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(
      world_size(),
      {{.name = "side outputs", .build = built<RowOf<SideBlock>>, .loss = loss_with_side_outputs}});
}

MULTI_RANK_TEST(
    AnyModel,
    a_model_that_catches_an_exception_of_an_inner_hook_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(
      world_size(), {{.name = "an exception of an inner hook", .build = built<CatchingNet>}});
}

MULTI_RANK_TEST(AnyModel, a_model_that_changes_outputs_in_place_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(
      world_size(), {{.name = "changes in place", .build = built<InPlaceNet<LayerBlock>>}});
}

MULTI_RANK_TEST(AnyModel, a_model_that_changes_views_in_place_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(
      world_size(), {{.name = "changes of views in place", .build = built<InPlaceNet<ViewBlock>>}});
}

MULTI_RANK_TEST(AnyModel, a_model_with_batch_norm_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(
      world_size(),
      {{.name = "convolutions", .build = convolutions, .loss = mean_square_of({2, 3, 8, 8})}});
}

MULTI_RANK_TEST(AnyModel, torch_modules_with_submodules_end_with_the_bits_of_one_process) {
  expect_equal_to_one_process(world_size(), {{.name = "layers of torch with layers inside",
                                              .build = built<RowOf<EncoderBlock>>,
                                              .loss = mean_square_of({2, 3, 6})}});
}

MULTI_RANK_TEST(AnyModel, a_model_with_dropout_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(
      world_size(),
      {{.name = "dropout", .build = built<RowOf<DropBlock>>, .loss = loss_of_drop_out}});
}

MULTI_RANK_TEST(AnyModel, a_model_with_recomputed_dropout_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(world_size(), {{.name = "dropout, computed again",
                                              .build = checkpointed_drop_out,
                                              .loss = loss_of_drop_out}});
}

// In this test, fully_shard(module) marks each fsdp::Module below the root, so the model has units
// inside units.
MULTI_RANK_TEST(AnyModel, modules_marked_by_fully_shard_become_the_units) {
  const auto wrap = [](Module& model) {
    for (const auto& module : model.modules(/*include_self=*/false))
      if (auto* unit = dynamic_cast<Module*>(module.get())) fully_shard(*unit);
    EXPECT_CONTAINS(error_of([&] { mean_square(model, 0, 1, 0); }),
                    "BlockNet: fully_shard(module)");
    return wrap_marked()(model);
  };
  expect_equal_to_one_process(
      world_size(),
      {{.name = "marked", .build = built<RowOf<BlockNet>>, .options = {.wrap = wrap}}},
      {train_sharded});
}

MULTI_RANK_SUITE_ON(AnyModelOnSeveralRanks, 2, 3, 4);

// The input of the first unit requires no gradient. So on a rank that does not use the unit's
// parameters, the unit's output requires no gradient either, and backward does not unshard it.
MULTI_RANK_TEST(AnyModelOnSeveralRanks,
                a_first_unit_whose_parameters_some_ranks_do_not_use_throws) {
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

MULTI_RANK_TEST(AnyModel, a_parameter_of_a_block_that_forward_skips_gets_a_zero_gradient) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    SkippingNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    auto named = model.named_parameters();
    net.blocks[1]->skips = true;
    loss_of(net, rank).backward();
    const at::Tensor gradient = named["b1.linear.weight"].grad();
    ASSERT_TRUE(gradient.defined());
    EXPECT_TRUE(this_ranks_part(gradient).eq(0).all().item<bool>());
  });
}

// A block that also computes a side output. The block's own output does not depend on it.
struct AsideBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    side = linear(linear(x)).sum();
    return LayerBlock::forward(x);
  }
  at::Tensor side;
};

MULTI_RANK_TEST(AnyModel, backward_of_only_a_side_output_throws_and_names_the_sharded_unit) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    RowOf<AsideBlock> net(1);
    FullyShardedDataParallel sharded(net, rank.communicator());
    net(batch_part(0, 1, 0, {5, 7}));
    EXPECT_CONTAINS(error_of([&] { net.blocks[0]->side.backward(); }),
                    "of unit b0 are sharded now");
  });
}

// A model with a buffer and without parameters.
struct CountingNet : Module {
  at::Tensor forward(at::Tensor x) override {
    steps += 1;
    return x * 2;
  }
  at::Tensor steps = register_buffer("steps", at::zeros({}, at::kLong));
};

MULTI_RANK_TEST(AnyModel, a_model_without_parameters_can_be_wrapped_called_saved_and_loaded) {
  run_ranks(world_size(), [](TestRank& rank) {
    CountingNet net;
    FullyShardedDataParallel model(net, rank.communicator(), {.wrap = wrap_none()});
    EXPECT_TRUE(model.parameters().empty());
    const at::Tensor x = at::ones({2}).requires_grad_();
    model(x).sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 2.0)));
    EXPECT_EQ(model.clip_grad_norm_(1), 0);
    model.load_state_dict(model.state_dict());
    EXPECT_EQ(model.state_dict().at("steps").item<int64_t>(), 1);
  });
}

// Forward and backward compute in bf16; the shards and the optimizer use fp32. This test compares
// FullyShardedDataParallel with fully_shard(); tests/properties compares fully_shard() with one
// process.
MULTI_RANK_TEST(AnyModel, a_model_with_param_dtype_bf16_trains_as_with_fully_shard) {
  run_ranks(world_size(), [](TestRank& rank) {
    const MixedPrecisionPolicy policy{at::kBFloat16, at::kFloat};
    const OptimizerOf sgd = [](std::vector<at::Tensor> parameters) {
      return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.05));
    };
    ShardedNet sharded(rank, sgd, block_net(), {.mixed_precision = policy});
    const auto net = block_net();
    const auto plain = fully_shard(*net, rank.communicator());
    for (const auto& unit : plain->units())
      unit->set_mixed_precision(policy);
    const auto optimizer = make_sharded_optimizer(
        plain->units(),
        {{"", {.kind = OptimizerOptions::Kind::sgd, .lr = 0.05, .weight_decay = 0}}},
        rank.communicator());
    for (int step = 0; step < kSteps; ++step) {
      // `x` is in fp32. A call of sharded.model casts it to bf16.
      const at::Tensor x = batch_part(rank.rank(), rank.world_size(), step, {5, 7});
      const at::Tensor output = sharded.model(x), expected = (*net)(x.to(at::kBFloat16));
      EXPECT_TRUE(at::equal(output, expected)) << "step " << step;
      for (const at::Tensor& one : {output, expected})
        one.to(at::kFloat).square().mean().backward();
      sharded.optimizer->step();
      sharded.optimizer->zero_grad();
      optimizer->step();
      optimizer->zero_grad();
      sharded.model.summon_full_params([] {});  // this call must not change a parameter
    }
    EXPECT_EQ(sharded.model.state_dict().at("scale").scalar_type(), at::kFloat);
  });
}

}  // namespace
}  // namespace fsdp
