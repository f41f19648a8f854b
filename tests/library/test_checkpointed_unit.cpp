#include <ATen/autocast_mode.h>
#include <adapted.h>
#include <checkpoint_activations.h>
#include <torch/nn/modules/embedding.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// Tests units with checkpointed activations, and units that backward does not unshard.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(CheckpointedUnit);

// Trains several steps under autocast: the recomputation in backward leaves casts of parameters in
// autocast's cache, and the forward of the next step must not use them.
MULTI_RANK_TEST(CheckpointedUnit, activation_checkpointing_under_autocast_changes_no_bit) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto train = [&](bool checkpointed) {
      const auto net = block_net();
      if (checkpointed)
        for (const auto& block : net->blocks)
          checkpoint_activations(*block);
      FullyShardedDataParallel model(*net, rank.communicator());
      const auto optimizer = adamw(model.parameters());
      for (int step = 0; step < kSteps; ++step) {
        at::autocast::set_autocast_enabled(at::kCPU, true);
        const at::Tensor loss = loss_of(*net, rank, step);
        // In step 1 the test does not clear autocast's cache. So FullyShardedDataParallel must drop
        // the casts of the parameters' old values.
        if (step != 1) at::autocast::clear_cache();
        at::autocast::set_autocast_enabled(at::kCPU, false);
        loss.backward();
        optimizer->step();
        optimizer->zero_grad();
      }
      at::autocast::clear_cache();
      return model.state_dict();
    };
    const StateDict expected = train(false), found = train(true);
    for (const auto& entry : expected)
      EXPECT_TRUE(at::equal(found.at(entry.key()), entry.value())) << entry.key();
  });
}

// An embedding with a dropout, written by the user.
struct RowsBlock : Module {
  at::Tensor forward(at::Tensor ids) override {
    ++runs;
    return at::dropout(at::embedding(rows, ids), 0.5, is_training());
  }
  bool reads_parameters_in_backward() const override { return false; }
  at::Tensor rows = register_parameter("rows", at::randn({5, 7}));
  int runs{};
};

// Adds the rows of torch's Embedding and of a RowsBlock, neither of which reads parameters in
// backward.
struct RowsNet : Module {
  at::Tensor forward(at::Tensor ids) override {
    const at::Tensor of_rows = (*rows)(ids);
    return (*block)((*table)(ids) + of_rows);
  }
  std::shared_ptr<Module> table = register_module("table", hookable(torch::nn::Embedding(5, 7)));
  std::shared_ptr<RowsBlock> rows = register_module("rows", std::make_shared<RowsBlock>());
  std::shared_ptr<LayerBlock> block = register_module("block", std::make_shared<LayerBlock>());
};

MULTI_RANK_TEST(CheckpointedUnit, checkpointed_embeddings_train_as_without_checkpointing) {
  const auto wrap = [](Module& root) {
    auto& net = dynamic_cast<RowsNet&>(root);
    return std::vector<Module*>{net.table.get(), net.rows.get(), net.block.get()};
  };
  run_ranks(world_size(), [&](TestRank& rank) {
    for (const bool reshards : {true, false}) {
      const auto train = [&](bool checkpointed) {
        torch::manual_seed(1);
        RowsNet net;
        if (checkpointed)
          for (Module* module : wrap(net))
            checkpoint_activations(*module);
        FullyShardedDataParallel model(net, rank.communicator(),
                                       {.wrap = wrap, .reshard_after_forward = reshards});
        const auto optimizer = adamw(model.parameters());
        for (int step = 0; step < kSteps; ++step) {
          torch::manual_seed(step);
          model(at::tensor({rank.rank(), 1, 4})).square().mean().backward();
          optimizer->step();
          optimizer->zero_grad();
        }
        return model.state_dict();
      };
      const StateDict expected = train(false), found = train(true);
      for (const auto& entry : expected)
        EXPECT_TRUE(at::equal(found.at(entry.key()), entry.value())) << entry.key();
    }
  });
}

// A block whose reads_parameters_in_backward() wrongly returns false: in backward, the linear layer
// of its child reads its weight, or the checkpointed child is recomputed.
struct HidingBlock : Module {
  at::Tensor forward(at::Tensor x) override { return (*inside)(x); }
  bool reads_parameters_in_backward() const override { return false; }
  std::shared_ptr<LayerBlock> inside = register_module("inside", std::make_shared<LayerBlock>());
};

const char* const kCallIt = "call the module";

MULTI_RANK_TEST(CheckpointedUnit,
                an_error_in_backward_names_reads_parameters_in_backward_if_this_promise_is_false) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const bool checkpointed : {true, false}) {
      torch::manual_seed(1);
      RowOf<HidingBlock> net;
      if (checkpointed) checkpoint_activations(*net.blocks[1]->inside);
      FullyShardedDataParallel model(net, rank.communicator(),
                                     {.wrap = wrap_by_type("HidingBlock")});
      const at::Tensor loss =
          model(batch_part(rank.rank(), rank.world_size(), 0, {5, 7}).requires_grad_()).sum();
      const std::string error = error_of([&] { loss.backward(); });
      EXPECT_CONTAINS(error, checkpointed
                                 ? "backward runs forward() of fsdp::LayerBlock again, but "
                                   "parameter linear.weight is sharded there"
                                 : "in backward, which reads them");
      EXPECT_CONTAINS(error, "reads_parameters_in_backward()");
      EXPECT_LACKS(error, kCallIt);
      const std::string outside = error_of([&] { net.blocks[0]->forward(at::ones({2, 7})); });
      EXPECT_CONTAINS(outside, "sharded");
      model.zero_grad();
      {
        const at::NoGradGuard no_grad;
        model(at::ones({2, 7}));
      }
      EXPECT_CONTAINS(error_of([&] { net.blocks[0]->forward(at::ones({2, 7})); }), kCallIt);
    }
  });
}

// A block that calls itself recursively.
struct TreeBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    if (x.size(0) > 1) x = at::cat({(*this)(x.slice(0, 0, 1)), x.slice(0, 1)});
    return LayerBlock::forward(x);
  }
};

MULTI_RANK_TEST(CheckpointedUnit,
                the_error_in_a_unit_that_calls_itself_and_reshards_names_the_recursive_call) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const bool reshards : {true, false}) {
      torch::manual_seed(1);
      RowOf<TreeBlock> net;
      FullyShardedDataParallel model(net, rank.communicator(), {.reshard_after_forward = reshards});
      const auto step = [&] { model(at::ones({2, 7})).sum().backward(); };
      if (!reshards) {
        step();
        continue;
      }
      const std::string error = error_of(step);
      EXPECT_CONTAINS(error, "of unit b0 are sharded inside a call of ");
      EXPECT_CONTAINS(error, "another call of it, inside this one, has ended");
      EXPECT_LACKS(error, kCallIt);
      EXPECT_CONTAINS(error_of([&] { net.blocks[0]->forward(at::ones({1, 7})); }), kCallIt);
    }
  });
}

}  // namespace
}  // namespace fsdp
