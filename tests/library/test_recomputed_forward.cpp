#include <ATen/autocast_mode.h>
#include <checkpoint_activations.h>

#include <library/models.h>
#include <library/one_process.h>

#include <thread>

// Tests that a forward that is recomputed in backward uses the settings of LibTorch, such as
// autocast, that the thread had in the first forward.
namespace fsdp {
namespace {

void set_autocast(std::optional<at::ScalarType> dtype) {
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, dtype.has_value());
  at::autocast::set_autocast_dtype(at::kCPU, dtype.value_or(at::kBFloat16));
}

// Returns as a text the thread-local settings of LibTorch that a forward can read.
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
    // The sum has the default dtype, which is one of the settings.
    return LayerBlock::forward(x) + at::ones({}, at::TensorOptions()) / 3;
  }
  std::vector<std::string> runs;
};

struct Settings {
  std::string name;
  // Called before forward and before backward, to change the settings.
  std::function<void()> forward, backward;
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

TEST(RecomputedForward,
     a_recomputed_forward_uses_the_settings_of_the_first_forward_and_backward_keeps_its_own) {
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

}  // namespace
}  // namespace fsdp
