#include <ATen/autocast_mode.h>
#include <adapted.h>
#include <checkpoint_activations.h>
#include <torch/nn/modules/embedding.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include <thread>

// What a forward that runs again in backward computes with, and units that backward does not
// gather.
namespace fsdp {
namespace {

void set_autocast(std::optional<at::ScalarType> dtype) {
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, dtype.has_value());
  at::autocast::set_autocast_dtype(at::kCPU, dtype.value_or(at::kBFloat16));
}

// What of the thread's settings a forward may ask for.
std::string settings() {
  const auto excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  std::ostringstream text;
  text << "autocast " << at::autocast::is_autocast_enabled(at::kCPU) << ' '
       << at::autocast::get_autocast_dtype(at::kCPU) << ' '
       << at::autocast::is_autocast_enabled(at::kCUDA) << ' '
       << at::autocast::get_autocast_dtype(at::kCUDA) << ", cache "
       << at::autocast::is_autocast_cache_enabled() << ", view replay "
       << c10::AutogradState::get_tls_state().get_view_replay_enabled() << ", named "
       << excluded.has(c10::DispatchKey::Named) << ", default " << c10::get_default_dtype();
  return text.str();
}

struct NotingBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    runs.push_back(settings());
    return LayerBlock::forward(x) + at::ones({}, at::TensorOptions()) / 3;  // of the default dtype
  }
  std::vector<std::string> runs;
};

struct Settings {
  std::string name;
  std::function<void()> forward, backward;  // set them, for each of the two
};

void default_settings() {
  set_autocast(std::nullopt);
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  at::autocast::set_autocast_dtype(at::kCUDA, at::kHalf);
  at::autocast::set_autocast_cache_enabled(true);
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
  c10::AutogradState::get_tls_state().set_view_replay_enabled(false);
  c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::Named, false);
}

std::vector<Settings> all_settings() {
  const auto bf16 = [] { set_autocast(at::kBFloat16); };
  const auto fp16 = [] { set_autocast(at::kHalf); };
  return {{"autocast in forward", bf16, default_settings},
          {"autocast in backward", default_settings, bf16},
          {"another dtype in backward", bf16, fp16},
          {"a dtype of its own, fp16", fp16, default_settings},
          {"autocast on another device",
           [] {
             at::autocast::set_autocast_enabled(at::kCUDA, true);
             at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
           },
           default_settings},
          {"no cache",
           [] {
             set_autocast(at::kBFloat16);
             at::autocast::set_autocast_cache_enabled(false);
           },
           bf16},
          {"default dtype", [] { c10::set_default_dtype(caffe2::TypeMeta::Make<double>()); },
           default_settings},
          {"view replay", [] { c10::AutogradState::get_tls_state().set_view_replay_enabled(true); },
           default_settings},
          {"dispatch keys",
           [] { c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::Named, true); },
           default_settings}};
}

std::vector<at::Tensor> gradients_of(NotingBlock& block, const Settings& of,
                                     bool in_another_thread) {
  at::Tensor x = batch_part(0, 1, 0, {5, 7}).requires_grad_();
  default_settings();
  of.forward();
  const at::Tensor loss = block(x).to(at::kFloat).square().mean();
  at::autocast::clear_cache();
  default_settings();
  of.backward();
  const std::string before = settings();
  if (in_another_thread) {
    std::thread([&] { loss.backward(); }).join();
  } else {
    loss.backward();
  }
  EXPECT_EQ(settings(), before) << of.name;
  default_settings();
  return {x.grad(), block.linear->weight.grad(), block.linear->bias.grad()};
}

TEST(SecondRun, the_settings_are_those_of_the_first_run_and_backward_keeps_its_own) {
  run_ranks(1, [](TestRank& rank) {
    for (const Settings& each : all_settings())
      for (const bool in_another_thread : {false, true}) {
        torch::manual_seed(1);
        const auto plain = std::make_shared<NotingBlock>();
        torch::manual_seed(1);
        const auto checkpointed = std::make_shared<NotingBlock>();
        checkpoint_activations(*checkpointed);
        const auto expected = gradients_of(*plain, each, in_another_thread);
        const auto found = gradients_of(*checkpointed, each, in_another_thread);
        ASSERT_EQ(checkpointed->runs.size(), 2U);
        EXPECT_EQ(checkpointed->runs[0], plain->runs[0]) << each.name;
        EXPECT_EQ(checkpointed->runs[1], plain->runs[0]) << each.name;
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(at::equal(found[i], expected[i])) << each.name << ", gradient " << i;
      }
  });
}

MULTI_RANK_SUITE(CheckpointedUnit);

// Several steps: what a second run had cast must not be in the next step's forward.
MULTI_RANK_TEST(CheckpointedUnit, training_under_autocast_is_as_without_checkpointing) {
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
        if (step != 1) at::autocast::clear_cache();  // else FSDP has to drop old casts
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

// The first is LibTorch's layer, the second a class of the user's, which also has a dropout.
struct RowsBlock : Module {
  at::Tensor forward(at::Tensor ids) override {
    ++runs;
    return at::dropout(at::embedding(rows, ids), 0.5, is_training());
  }
  bool reads_parameters_in_backward() const override { return false; }
  at::Tensor rows = register_parameter("rows", at::randn({5, 7}));
  int runs{};
};

struct RowsNet : Module {
  at::Tensor forward(at::Tensor ids) override { return (*block)((*table)(ids) + (*rows)(ids)); }
  std::shared_ptr<Module> table = register_module("table", hookable(torch::nn::Embedding(5, 7)));
  std::shared_ptr<RowsBlock> rows = register_module("rows", std::make_shared<RowsBlock>());
  std::shared_ptr<LayerBlock> block = register_module("block", std::make_shared<LayerBlock>());
};

MULTI_RANK_TEST(CheckpointedUnit, a_unit_whose_backward_reads_no_parameters_trains) {
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

// Says that backward reads no parameter, of a child too; but the child runs again there.
struct HidingBlock : Module {
  at::Tensor forward(at::Tensor x) override { return (*inside)(x); }
  bool reads_parameters_in_backward() const override { return false; }
  std::shared_ptr<LayerBlock> inside = register_module("inside", std::make_shared<LayerBlock>());
};

const char* const kCallIt = "call the module";

MULTI_RANK_TEST(CheckpointedUnit, a_parameter_that_is_sharded_in_backward_names_who_said_so) {
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

// Calls itself, as a tree does.
struct TreeBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    if (x.size(0) > 1) x = at::cat({(*this)(x.slice(0, 0, 1)), x.slice(0, 1)});
    return LayerBlock::forward(x);
  }
};

MULTI_RANK_TEST(CheckpointedUnit, a_call_of_a_unit_inside_its_call_is_named) {
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
