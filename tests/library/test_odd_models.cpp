#include <checkpoint_activations.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/transformerlayer.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// Models that are not a row of layers: what an engineer brings along. Each is compared with one
// process bit by bit, or refused.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(OddModel);

MULTI_RANK_TEST(OddModel, may_have_parameters_of_any_size_and_order) {
  expect_equal_to_one_process(world_size(), training_of<TinyNet>());
}

// The table of the embedding is the head's weight.
struct EmbeddingBlock : Module {
  at::Tensor forward(at::Tensor ids) override { return table(ids); }
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(11, 7));
};
struct HeadBlock : Module {
  explicit HeadBlock(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
  at::Tensor forward(at::Tensor x) override { return at::linear(x, weight); }
  at::Tensor weight;
};
struct TiedNet : Module {
  at::Tensor forward(at::Tensor ids) override { return (*head)((*block)((*embedding)(ids))); }
  std::shared_ptr<EmbeddingBlock> embedding =
      register_module("embedding", std::make_shared<EmbeddingBlock>());
  std::shared_ptr<LayerBlock> block = register_module("block", std::make_shared<LayerBlock>());
  std::shared_ptr<HeadBlock> head =
      register_module("head", std::make_shared<HeadBlock>(embedding->table->weight));
};

at::Tensor loss_of_words(Module& model, int part, int parts, int step) {
  const at::Tensor ids =
      batch_part(part, parts, step, {3, 4}).mul(10).abs().to(at::kLong).remainder(11);
  return at::cross_entropy_loss(model(ids).flatten(0, 1), ids.flatten());
}

MULTI_RANK_TEST(OddModel, may_share_the_table_of_its_embedding_with_its_head) {
  Training training = training_of<TiedNet>();
  training.loss = loss_of_words;
  expect_equal_to_one_process(world_size(), training);
}

MULTI_RANK_TEST(OddModel, that_ties_a_weight_by_assignment_alone_is_refused) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    RowOf<LayerBlock> net;
    net.blocks[1]->linear->weight = net.blocks[0]->linear->weight;
    FullyShardedDataParallel model(net, rank.communicator());
    EXPECT_CONTAINS(error_of([&] { loss_of(net, rank); }),
                    "b0.linear.weight and 1 more of unit b0 are sharded now");
  });
}

// A unit inside a unit, and modules without parameters that are chosen as units.
struct QuietBlock : Module {
  at::Tensor forward(at::Tensor x) override { return x.tanh(); }
};
struct OuterBlock : Module {
  at::Tensor forward(at::Tensor x) override { return at::linear((*inner)((*quiet)(x)), weight); }
  at::Tensor weight = register_parameter("weight", at::randn({7, 7}));
  std::shared_ptr<QuietBlock> quiet = register_module("quiet", std::make_shared<QuietBlock>());
  std::shared_ptr<LayerBlock> inner = register_module("inner", std::make_shared<LayerBlock>());
};
struct NestedNet : Module {
  at::Tensor forward(at::Tensor x) override { return (*second)((*first)((*quiet)(x))); }
  std::shared_ptr<QuietBlock> quiet = register_module("quiet", std::make_shared<QuietBlock>());
  std::shared_ptr<OuterBlock> first = register_module("first", std::make_shared<OuterBlock>());
  std::shared_ptr<OuterBlock> second = register_module("second", std::make_shared<OuterBlock>());
};

MULTI_RANK_TEST(OddModel, may_have_units_inside_units_and_units_without_parameters) {
  expect_equal_to_one_process(world_size(), training_of<NestedNet>());
}

// No parameters at all.
struct CountingNet : Module {
  at::Tensor forward(at::Tensor x) override {
    steps += 1;
    return x * 2;
  }
  at::Tensor steps = register_buffer("steps", at::zeros({}, at::kLong));
};

MULTI_RANK_TEST(OddModel, may_have_buffers_alone) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    CountingNet net;
    FullyShardedDataParallel model(net, rank.communicator(), {.wrap = wrap_none()});
    EXPECT_TRUE(model.parameters().empty());
    const at::Tensor x = at::ones({2}).requires_grad_();
    model(x).sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 2.0)));
    EXPECT_EQ(model.clip_grad_norm_(1), 0);
    model.load_state_dict(model.state_dict());
    rank.observe("steps", model.state_dict().at("steps").item<int64_t>());
  });
  expect_on_all_ranks(run, "steps", 1);
}

struct DropBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override { return drop(LayerBlock::forward(x)); }
  torch::nn::Dropout drop = register_module("drop", torch::nn::Dropout(0.5));
};

MULTI_RANK_TEST(OddModel, may_drop_out_with_and_without_checkpointed_activations) {
  const auto loss = [](Module& model, int part, int parts, int step) {
    const int64_t seed = 100 * int64_t{step} + part;
    torch::manual_seed(static_cast<uint64_t>(seed));
    return mean_square(model, part, parts, step);
  };
  for (const bool checkpointed : {false, true}) {
    Training training = training_of([=] {
      const auto net = std::make_shared<RowOf<DropBlock>>(3);
      for (const auto& block : net->blocks)
        if (checkpointed) checkpoint_activations(*block);
      return net;
    });
    training.loss = loss;
    expect_equal_to_one_process(world_size(), training);
  }
}

// Layers of torch's that have submodules of their own.
struct EncoderBlock : Module {
  at::Tensor forward(at::Tensor x) override { return layer(x); }
  torch::nn::TransformerEncoderLayer layer = register_module(
      "layer", torch::nn::TransformerEncoderLayer(
                   torch::nn::TransformerEncoderLayerOptions(6, 2).dim_feedforward(5).dropout(0)));
};

MULTI_RANK_TEST(OddModel, may_be_of_torchs_transformer_layers) {
  Training training = training_of<RowOf<EncoderBlock>>();
  training.loss = [](Module& model, int part, int parts, int step) {
    return model(batch_part(part, parts, step, {2, 3, 6})).square().mean();
  };
  expect_equal_to_one_process(world_size(), training);
}

// What writes to a weight in forward writes to what was gathered.
struct TableNet : Module {
  explicit TableNet(const torch::nn::EmbeddingOptions& options)
      : table(register_module("table", torch::nn::Embedding(options))) {}
  at::Tensor forward(at::Tensor ids) override { return table(ids); }
  torch::nn::Embedding table;
};

MULTI_RANK_TEST(OddModel, that_writes_to_a_parameter_in_forward_is_refused) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    TableNet net(torch::nn::EmbeddingOptions(5, 3).max_norm(0.1));
    FullyShardedDataParallel model(net, rank.communicator(), {.wrap = wrap_none()});
    EXPECT_CONTAINS(error_of([&] {
                      net(at::tensor({1, 2}));
                    }),
                    "parameter table.weight of unit root was written to while it was gathered");
  });
}

MULTI_RANK_TEST(OddModel, whose_root_is_written_to_between_forward_and_backward_is_refused) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    loss_of(*net, rank);  // the root stays unsharded
    {
      const at::NoGradGuard no_grad;
      net->scale.mul_(2);
    }
    EXPECT_CONTAINS(error_of([&] { loss_of(*net, rank); }),
                    "parameter scale of unit root was written to while it was gathered");
    loss_of(*net, rank).backward();  // and the model works on
  });
}

MULTI_RANK_TEST(OddModel, with_sparse_gradients_is_refused) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    TableNet net(torch::nn::EmbeddingOptions(5, 3).sparse(true));
    FullyShardedDataParallel model(net, rank.communicator(), {.wrap = wrap_none()});
    EXPECT_CONTAINS(error_of([&] {
                      net(at::tensor({1, 2})).sum().backward();
                    }),
                    "the gradient of parameter table.weight is sparse");
  });
}

MULTI_RANK_TEST(OddModel, that_gets_a_parameter_after_it_was_sharded_is_refused) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    net->register_module("late", std::make_shared<LayerBlock>());
    const char* const says = "parameter late.linear.weight was registered after";
    EXPECT_CONTAINS(error_of([&] { model.parameters(); }), says);
    EXPECT_CONTAINS(error_of([&] { loss_of(*net, rank); }), says);
    EXPECT_CONTAINS(error_of([&] { model.state_dict(); }), says);
  });
}

// As of one rank alone: the others have another collective to make.
MULTI_RANK_TEST(OddModel, whose_parameters_are_frozen_on_some_ranks_alone_is_refused) {
  if (world_size() == 1) return;
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    loss_of(*net, rank).backward();
    net->blocks[rank.rank() == 1 ? 1 : 0]->linear->bias.set_requires_grad(false);
    EXPECT_CONTAINS(error_of([&] { loss_of(*net, rank); }),
                    "ranks differ in parameter b0.linear.bias: frozen on rank");
  });
  const RankRun run = try_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    loss_of(*net, rank).backward();
    net->blocks[0]->linear->bias.set_requires_grad(rank.rank() != 1);
    loss_of(*net, rank).backward();
  });
  expect_error_says(run.failure(), "differs between ranks");
}

// bf16 in forward and backward; the shards, and what the optimizer sees, are fp32.
at::Tensor loss_in_bf16(Module& model, int part, int parts, int step) {
  const at::Tensor x = batch_part(part, parts, step, {5, 7}).to(at::kBFloat16);
  return model(x).to(at::kFloat).square().mean();
}

MULTI_RANK_TEST(OddModel, may_be_gathered_in_bf16) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator(),
                                   {.mixed_precision = {at::kBFloat16, at::kFloat}});
    const auto optimizer = adamw(model.parameters());
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x = batch_part(rank.rank(), rank.world_size(), step, {5, 7});  // is cast
      model(x).to(at::kFloat).square().mean().backward();
      optimizer->step();
      optimizer->zero_grad();
      model.summon_full_params([] {});  // and writes nothing
    }
    rank.observe("weight", model.state_dict().at("b1.linear.weight"));
  });
  const RankRun one = run_oracle([&](TestRank& rank) {
    const auto net = block_net();
    std::vector<at::Tensor> masters;
    for (const at::Tensor& parameter : net->parameters())
      masters.push_back(parameter.detach().clone().requires_grad_());
    net->to(at::kBFloat16);
    std::vector<at::Tensor> rounded = net->parameters();
    const auto optimizer = adamw(masters);
    for (int step = 0; step < 3; ++step) {
      std::vector<std::vector<at::Tensor>> gradients(masters.size());
      for (size_t i = 0; i < masters.size(); ++i)
        rounded[i].detach().copy_(masters[i].detach());
      for (int part = 0; part < world_size(); ++part) {
        loss_in_bf16(*net, part, world_size(), step).backward();
        for (size_t i = 0; i < masters.size(); ++i)
          gradients[i].push_back(std::exchange(rounded[i].mutable_grad(), {}).to(at::kFloat));
      }
      for (size_t i = 0; i < masters.size(); ++i)
        masters[i].mutable_grad() =
            sum_as_tree(gradients[i]).view(masters[i].sizes()).div(world_size());
      optimizer->step();
    }
    rank.observe("weight", masters[3].detach());
  });
  expect_on_all_ranks(run, "weight", one.at(0, "weight"));
}

}  // namespace
}  // namespace fsdp
