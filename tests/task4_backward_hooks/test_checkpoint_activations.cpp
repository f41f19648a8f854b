#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <checkpoint_activations.h>
#include <memory/live_bytes.h>
#include <nn/gradient_hook.h>
#include <testing/multi_rank.h>
#include <torch/csrc/autograd/graph_task.h>

#include <set>
#include <utility>

#include "checkpointed_layers.h"

// Tests what a call of a checkpointed module keeps, and when and how its forward() runs again.
namespace fsdp {
namespace {

int64_t live_rest() {
  return live_bytes::now()[MemoryClass::other];
}

constexpr const char* kGenerator =
    "the generator's state; if it differs, the second run of forward() leaves the generator changed";

at::Tensor state_of_generator() {
  return at::globalContext().defaultGenerator(c10::kCPU).get_state();
}

TEST(T4_6_checkpoint_activations, checkpointed_calls_run_again_in_backward_last_call_first) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    std::string runs;
    Chain::Parts parts;
    for (const char* name : {"a ", "b ", "c "}) {
      const auto part = layer();
      part->begin = [&runs, name] { runs += name; };
      checkpoint_activations(*part);
      parts.push_back(part);
    }
    const auto model = chain(parts);
    for (const std::string pass : {"first", "second"}) {
      const at::Tensor loss = (*model)(random_input()).sum();
      rank.observe("forward() of the " + pass + " pass runs", std::exchange(runs, ""));
      loss.backward();
      rank.observe("backward of the " + pass + " pass runs", std::exchange(runs, ""));
    }
  });
  for (const std::string pass : {"first", "second"}) {
    expect_on_rank(run, 0, "forward() of the " + pass + " pass runs", "a b c ");
    expect_on_rank(run, 0, "backward of the " + pass + " pass runs", "c b a ");
  }
}

TEST(T4_6_checkpoint_activations, a_checkpointed_call_keeps_its_input_but_no_activation) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor x = random_input();
    const int64_t before = live_rest();
    const at::Tensor y = (*block)(x);
    rank.observe("kept", live_rest() - before - kActivation);
  });
  EXPECT_LT(run.at(0, "kept"), kActivation)
      << "bytes are kept besides input and output; an activation has " << kActivation;
}

// Observes the peak of live bytes in backward of a model of `layers` layers, and the bytes that are
// left afterwards, both without the model.
void observe_peak_of_backward(TestRank& rank, int layers) {
  const auto model = chain_of_layers(layers);
  for (const auto& part : model->parts)
    checkpoint_activations(*part);
  const int64_t before = live_rest();
  at::Tensor loss = (*model)(random_input()).sum();
  live_bytes::reset(Phase::backward);
  live_bytes::enter(Phase::backward);
  loss.backward();
  live_bytes::enter(Phase::init);
  loss.reset();
  model->zero_grad();
  rank.observe("left of " + std::to_string(layers), live_rest() - before);
  rank.observe("peak of " + std::to_string(layers),
               live_bytes::peak(Phase::backward)[MemoryClass::other] - before);
}

// At the peak, each layer holds its input if backward has not reached it, and otherwise two
// gradients.
TEST(T4_6_checkpoint_activations, recomputed_activations_are_freed_before_the_next_recomputation) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    observe_peak_of_backward(rank, 4);
    observe_peak_of_backward(rank, 8);
  });
  expect_on_all_ranks(run, {{"left of 4", 0}, {"left of 8", 0}});
  const auto peak = [&](int layers) {
    return run.at(0, "peak of " + std::to_string(layers)).get<int64_t>();
  };
  EXPECT_LT((peak(8) - peak(4)) / 4, 3 * kActivation)
      << "bytes that one more layer adds to the peak of backward; an activation has "
      << kActivation;
}

TEST(T4_6_checkpoint_activations, the_recomputation_draws_the_random_numbers_of_the_first_run) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = layer();
    std::vector<at::Tensor> drawn;
    block->begin = [&] { drawn.push_back(at::rand({3})); };
    checkpoint_activations(*block);
    const at::Tensor loss = (*block)(random_input()).sum();
    // Draws a number between forward and backward, as other modules of a model do.
    at::rand({1});
    loss.backward();
    rank.observe("runs of forward()", drawn.size());
    rank.observe("drawn in the call", drawn.front());
    rank.observe("drawn in backward", drawn.back());
  });
  expect_on_rank(run, 0, "runs of forward()", 2);
  expect_on_rank(run, 0, "drawn in backward", run.at(0, "drawn in the call"));
}

TEST(T4_6_checkpoint_activations, recomputation_in_backward_leaves_the_generator_unchanged) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor loss = (*block)(random_input()).sum();
    at::rand({1});
    rank.observe("generator before", state_of_generator());
    loss.backward();
    rank.observe("runs of forward()", block->runs);
    rank.observe(kGenerator, state_of_generator());
  });
  expect_on_all_ranks(run, {{"runs of forward()", 2}, {kGenerator, run.at(0, "generator before")}});
}

// Returns the autocast settings of the CPU as a text.
std::string autocast_settings() {
  return std::string(at::autocast::is_autocast_enabled(c10::kCPU) ? "on, " : "off, ") +
         c10::toString(at::autocast::get_autocast_dtype(c10::kCPU)) +
         (at::autocast::is_autocast_cache_enabled() ? ", keeps casts" : ", keeps none");
}

void set_autocast(bool on, at::ScalarType dtype, bool keeps_casts) {
  at::autocast::set_autocast_enabled(c10::kCPU, on);
  at::autocast::set_autocast_dtype(c10::kCPU, dtype);
  at::autocast::set_autocast_cache_enabled(keeps_casts);
}

TEST(T4_6_checkpoint_activations, the_recomputation_uses_the_autocast_settings_of_the_first_run) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    for (const bool on : {true, false}) {
      const auto block = layer();
      std::string runs;
      block->begin = [&] { runs += autocast_settings() + "; "; };
      checkpoint_activations(*block);
      set_autocast(on, at::kHalf, !on);
      const at::Tensor loss = (*block)(random_input()).sum();
      set_autocast(!on, at::kBFloat16, true);
      loss.backward();
      rank.observe(std::string("autocast in the runs, ") + (on ? "on" : "off"), runs);
      rank.observe(std::string("autocast after backward, ") + (on ? "on" : "off"),
                   autocast_settings());
      set_autocast(false, at::kBFloat16, true);
    }
  });
  expect_on_rank(run, 0, "autocast in the runs, on",
                 "on, Half, keeps none; on, Half, keeps none; ");
  expect_on_rank(run, 0, "autocast after backward, on", "off, BFloat16, keeps casts");
  expect_on_rank(run, 0, "autocast in the runs, off",
                 "off, Half, keeps casts; off, Half, keeps casts; ");
  expect_on_rank(run, 0, "autocast after backward, off", "on, BFloat16, keeps casts");
}

// Runs forward and backward of a layer under autocast, and then changes the layer's weight. Returns
// a product with the changed weight, computed under autocast.
at::Tensor product_after_a_change(bool checkpointed) {
  torch::manual_seed(1);
  const auto block = layer();
  if (checkpointed) checkpoint_activations(*block);
  const at::Tensor x = random_input();
  set_autocast(true, at::kBFloat16, true);
  const at::Tensor loss = (*block)(x).sum();
  at::autocast::clear_cache();
  set_autocast(false, at::kBFloat16, true);
  loss.backward();
  block->first.detach().add_(1);
  set_autocast(true, at::kBFloat16, true);
  const at::Tensor product = at::linear(x, block->first).detach().to(at::kFloat);
  at::autocast::clear_cache();
  set_autocast(false, at::kBFloat16, true);
  return product;
}

TEST(T4_6_checkpoint_activations, the_recomputation_leaves_no_cached_cast_to_the_next_forward) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    rank.observe("without", product_after_a_change(false));
    rank.observe("checkpointed", product_after_a_change(true));
  });
  expect_on_rank(run, 0, "checkpointed", run.at(0, "without"));
}

// A module that looks up rows of a table. Its backward needs only the indices, so FSDP does not
// gather the module's unit for backward.
struct RowsBlock : Module {
  at::Tensor forward(at::Tensor ids) override {
    ++runs;
    return at::embedding(rows, ids);
  }
  bool reads_parameters_in_backward() const override { return false; }
  at::Tensor rows = register_parameter("rows", at::randn({5, 3}));
  int runs{};
};

TEST(T4_6_checkpoint_activations, a_checkpointed_module_that_needs_no_parameters_runs_once) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = std::make_shared<RowsBlock>();
    checkpoint_activations(*block);
    (*block)(at::tensor({1, 1, 4})).sum().backward();
    rank.observe("runs of forward()", block->runs);
    rank.observe("sum of the gradient", block->rows.grad().sum());
  });
  expect_on_rank(run, 0, "runs of forward()", 1);
}

TEST(T4_6_checkpoint_activations, recomputed_gradients_arrive_in_the_outer_backward_pass) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    std::set<int> passes;
    int seen = 0;
    const auto note = [&] {
      passes.insert(torch::autograd::get_current_graph_task_id());
      ++seen;
    };
    Chain::Parts parts;
    for (int i = 0; i < 2; ++i) {
      const auto block = layer();
      checkpoint_activations(*block);
      register_post_accumulate_grad_hook(block->first, note);
      register_post_accumulate_grad_hook(block->second, note);
      parts.push_back(block);
    }
    const auto model = chain(parts);
    (*model)(random_input()).sum().backward();
    rank.observe("runs of forward()", model->runs());
    rank.observe("backward passes in which post-accumulate hooks ran", passes.size());
    rank.observe("post-accumulate hooks that ran", seen);
  });
  expect_on_rank(run, 0, "runs of forward()", 4);
  expect_on_rank(run, 0, "backward passes in which post-accumulate hooks ran", 1);
  expect_on_rank(run, 0, "post-accumulate hooks that ran", 4);
}

// Runs forward and backward of two modules. Observes a text that lists the hooks of the modules, in
// the order in which they ran.
void observe_hooks(TestRank& rank, const std::function<void(Module&)>& checkpoint) {
  std::string events;
  const auto first = layer(), second = layer();
  for (const auto& [name, block] : {std::pair("first", first), std::pair("second", second)}) {
    checkpoint(*block);
    const auto note = [&events, name = std::string(name)](const std::string& what) {
      return [&events, event = name + " " + what + "; "](auto&&...) {
        events += event;
        return at::Tensor();
      };
    };
    block->register_forward_pre_hook(note("pre-forward"));
    block->register_forward_hook(note("forward"));
    block->register_full_backward_pre_hook(note("pre-backward"));
    block->register_full_backward_hook(note("backward"));
    register_post_accumulate_grad_hook(block->first, note("post-accumulate"));
  }
  (*second)((*first)(random_input())).sum().backward();
  rank.observe("hooks", events);
  rank.observe("runs of forward()", first->runs);
}

TEST(T4_6_checkpoint_activations, module_hooks_run_as_they_do_without_checkpointing) {
  const RankRun expected = run_oracle([](TestRank& rank) { observe_hooks(rank, [](Module&) {}); });
  const RankRun run =
      run_ranks(1, [](TestRank& rank) { observe_hooks(rank, checkpoint_activations); });
  expect_on_all_ranks(run, {{"hooks", expected.at(0, "hooks")}, {"runs of forward()", 2}});
}

TEST(T4_6_checkpoint_activations, a_tensor_hook_on_the_input_of_a_checkpointed_call_runs_once) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = layer();
    checkpoint_activations(*block);
    int runs = 0;
    at::Tensor x = random_input() * 1;  // a product is not a leaf of the graph
    x.register_hook([&](const at::Tensor&) { ++runs; });
    (*block)(x).sum().backward();
    rank.observe("runs of a hook on the input's gradient", runs);
    rank.observe("runs of forward()", block->runs);
  });
  expect_on_rank(run, 0, "runs of forward()", 2);
  expect_on_rank(run, 0, "runs of a hook on the input's gradient", 1);
}

TEST(T4_6_checkpoint_activations, a_checkpointed_module_inside_another_one_runs_again_only_once) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto inner = layer();
    const auto outer = chain({inner, layer()});
    checkpoint_activations(*inner);
    checkpoint_activations(*outer);
    (*outer)(random_input()).sum().backward();
    rank.observe("runs of the inner forward()", inner->runs);
  });
  expect_on_rank(run, 0, "runs of the inner forward()", 2);
}

TEST(T4_6_checkpoint_activations, a_checkpointed_call_in_no_grad_mode_just_runs_forward) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor x = random_input();
    {
      const at::NoGradGuard no_grad;
      const int64_t before = live_rest();
      const at::Tensor y = (*block)(x);
      rank.observe("bytes kept besides input and output", live_rest() - before - kActivation);
      rank.observe("runs of forward()", block->runs);
      rank.observe("the output requires a gradient", y.requires_grad());
    }
    (*block)(x).sum().backward();
    rank.observe("runs of forward(), with those of a call with gradients", block->runs);
  });
  expect_on_all_ranks(run, {{"bytes kept besides input and output", 0},
                            {"runs of forward()", 1},
                            {"the output requires a gradient", false},
                            {"runs of forward(), with those of a call with gradients", 3}});
}

// Runs backward over a call whose second run throws, and keeps the graph. Returns what backward
// throws.
std::string break_off_in(LayerBlock& block, const at::Tensor& loss) {
  block.begin = [] { throw std::runtime_error("no more"); };
  const auto thrown = thrown_by([&] { loss.backward({}, /*retain_graph=*/true); });
  block.begin = nullptr;
  return thrown;
}

TEST(T4_6_checkpoint_activations, a_recomputation_that_throws_leaves_no_state_behind) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor loss = (*block)(random_input()).sum();
    at::rand({1});
    rank.observe("generator before", state_of_generator());
    rank.observe("what backward throws", break_off_in(*block, loss));
    rank.observe(kGenerator, state_of_generator());
    block->runs = 0;
    (*block)(random_input()).sum().backward();
    rank.observe("runs of forward() in the next call and its backward", block->runs);
  });
  expect_error(run, "what backward throws", {"std::runtime_error"});
  expect_on_all_ranks(run, {{kGenerator, run.at(0, "generator before")},
                            {"runs of forward() in the next call and its backward", 2}});
}

TEST(T4_6_checkpoint_activations,
     a_retained_graph_gives_the_right_gradients_after_a_backward_that_threw) {
  const auto of_layer = [](bool checkpointed) {
    return [=](TestRank& rank) {
      torch::manual_seed(test_seed(4));
      const auto block = layer();
      if (checkpointed) checkpoint_activations(*block);
      const at::Tensor x = random_input();
      const at::Tensor loss = (*block)(x).square().mean();
      if (checkpointed) rank.observe("what backward throws", break_off_in(*block, loss));
      for (const char* passes : {" after one pass", " after two passes"}) {
        loss.backward({}, /*retain_graph=*/true);
        rank.observe(std::string("the gradient of a weight") + passes, block->first.grad());
        rank.observe(std::string("the gradient of the input") + passes, x.grad());
      }
    };
  };
  const RankRun expected = run_oracle(of_layer(false));
  const RankRun run = run_ranks(1, of_layer(true));
  expect_error(run, "what backward throws", {"std::runtime_error"});
  expect_as(run, expected);
}

TEST(T4_6_checkpoint_activations, backward_throws_if_a_checkpointed_input_was_changed_in_place) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = layer();
    checkpoint_activations(*block);
    at::Tensor x = random_input() * 1;  // a product is not a leaf of the graph
    (*block)(x).sum().backward();
    rank.observe("runs of forward() with an input that stays", block->runs);
    x = random_input() * 1;
    const at::Tensor loss = (*block)(x).sum();
    {
      const at::NoGradGuard no_grad;
      x.zero_();
    }
    rank.observe("what backward throws with a changed input", thrown_by([&] { loss.backward(); }));
  });
  expect_on_all_ranks(run, "runs of forward() with an input that stays", 2);
  EXPECT_NE(run.at(0, "what backward throws with a changed input"), kNothingThrown)
      << "backward computes with a changed input";
}

TEST(T4_6_checkpoint_activations, the_autograd_graph_keeps_a_checkpointed_module_alive) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    auto block = layer();
    checkpoint_activations(*block);
    const std::weak_ptr<Module> watched = block;
    at::Tensor loss = (*block)(random_input()).sum();
    block.reset();
    rank.observe("the module is gone before backward", watched.expired());
    if (watched.expired()) return;
    loss.backward();
    loss.reset();
    rank.observe("the module outlives the graph", !watched.expired());
  });
  expect_on_all_ranks(run, {{"the module is gone before backward", false},
                            {"the module outlives the graph", false}});
}

}  // namespace
}  // namespace fsdp
