#include <ATen/Context.h>
#include <checkpoint_activations.h>
#include <memory/live_bytes.h>
#include <nn/gradient_hook.h>
#include <testing/multi_rank.h>
#include <testing/tensor_bits.h>
#include <torch/csrc/autograd/graph_task.h>

#include <set>
#include <utility>

#include "checkpointed_layers.h"

// What a call of a checkpointed module keeps, and when and how forward() runs again.
namespace fsdp {
namespace {

int64_t live_rest() {
  return live_bytes::now()[MemoryClass::rest];
}

at::Tensor state_of_generator() {
  return at::globalContext().defaultGenerator(c10::kCPU).get_state();
}

TEST(T4_6_checkpoint_activations, forward_runs_again_in_backward_last_call_first) {
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

TEST(T4_6_checkpoint_activations, a_call_keeps_its_input_and_nothing_that_is_made_inside) {
  run_ranks(1, [](TestRank&) {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor x = random_input();
    const int64_t before = live_rest();
    const at::Tensor y = (*block)(x);
    const int64_t kept = live_rest() - before - kActivation;
    EXPECT_LT(kept, kActivation) << kept << " bytes are kept besides input and output; an "
                                 << "activation has " << kActivation;
  });
}

// [bytes] The most that a pass through these layers has alive in backward, besides the model.
int64_t peak_of_backward(int layers) {
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
  EXPECT_EQ(live_rest(), before) << "bytes are left when graph and gradients are gone";
  return live_bytes::peak(Phase::backward)[MemoryClass::rest] - before;
}

// At the peak, a layer has its input, if its turn is still to come, or else two gradients.
TEST(T4_6_checkpoint_activations, what_a_second_run_makes_is_freed_before_the_next_one) {
  run_ranks(1, [](TestRank&) {
    const int64_t each = (peak_of_backward(8) - peak_of_backward(4)) / 4;
    EXPECT_LT(each, 3 * kActivation)
        << "bytes that one more layer adds to the peak of backward; an activation has "
        << kActivation;
  });
}

TEST(T4_6_checkpoint_activations, the_second_run_draws_what_the_first_drew) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = layer();
    std::vector<at::Tensor> drawn;
    block->begin = [&] { drawn.push_back(at::rand({3})); };
    checkpoint_activations(*block);
    const at::Tensor loss = (*block)(random_input()).sum();
    at::rand({1});  // what the rest of the model draws
    loss.backward();
    rank.observe("runs of forward()", drawn.size());
    rank.observe("drawn in the call", drawn.front());
    rank.observe("drawn in backward", drawn.back());
  });
  expect_on_rank(run, 0, "runs of forward()", 2);
  expect_on_rank(run, 0, "drawn in backward", run.at(0, "drawn in the call"));
}

TEST(T4_6_checkpoint_activations, the_generator_is_after_backward_what_it_was_before) {
  run_ranks(1, [](TestRank&) {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor loss = (*block)(random_input()).sum();
    at::rand({1});
    const at::Tensor before = state_of_generator();
    loss.backward();
    EXPECT_EQ(block->runs, 2) << "runs of forward()";
    EXPECT_TRUE(same_bits(state_of_generator(), before))
        << "the second run of forward() leaves the generator changed";
  });
}

TEST(T4_6_checkpoint_activations, gradients_come_in_the_pass_that_asked_for_them) {
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

// The hooks of two modules, in the order in which they ran. Each one's forward() runs `runs` times.
std::string hooks_that_run(const std::function<void(Module&)>& checkpoint, int runs) {
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
  EXPECT_EQ(first->runs, runs) << "runs of forward()";
  return events;
}

TEST(T4_6_checkpoint_activations, hooks_run_as_without) {
  const RankRun expected =
      run_oracle([](TestRank& rank) { rank.observe("hooks", hooks_that_run([](Module&) {}, 1)); });
  const RankRun run = run_ranks(
      1, [](TestRank& rank) { rank.observe("hooks", hooks_that_run(checkpoint_activations, 2)); });
  expect_on_rank(run, 0, "hooks", expected.at(0, "hooks"));
}

TEST(T4_6_checkpoint_activations, hooks_on_the_input_run_once) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = layer();
    checkpoint_activations(*block);
    int runs = 0;
    at::Tensor x = random_input() * 1;  // no leaf
    x.register_hook([&](const at::Tensor&) { ++runs; });
    (*block)(x).sum().backward();
    rank.observe("runs of a hook on the input's gradient", runs);
    rank.observe("runs of forward()", block->runs);
  });
  expect_on_rank(run, 0, "runs of forward()", 2);
  expect_on_rank(run, 0, "runs of a hook on the input's gradient", 1);
}

TEST(T4_6_checkpoint_activations, a_checkpointed_module_inside_another_one_is_a_part_of_it) {
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

TEST(T4_6_checkpoint_activations, a_call_without_gradients_just_runs_forward) {
  run_ranks(1, [](TestRank&) {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor x = random_input();
    {
      const at::NoGradGuard no_grad;
      const int64_t before = live_rest();
      const at::Tensor y = (*block)(x);
      EXPECT_EQ(live_rest() - before - kActivation, 0) << "bytes are kept besides input and output";
      EXPECT_EQ(block->runs, 1) << "runs of forward()";
      EXPECT_FALSE(y.requires_grad()) << "the output requires a gradient";
    }
    (*block)(x).sum().backward();
    EXPECT_EQ(block->runs, 3) << "runs of forward(), with those of a call with gradients";
  });
}

// Goes back over a call whose second run throws, and keeps the graph.
void break_off_in(LayerBlock& block, const at::Tensor& loss) {
  block.begin = [] { throw std::runtime_error("no more"); };
  EXPECT_THROW(loss.backward({}, /*retain_graph=*/true), std::runtime_error);
  block.begin = nullptr;
}

TEST(T4_6_checkpoint_activations, a_forward_that_throws_in_backward_leaves_nothing_behind) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor loss = (*block)(random_input()).sum();
    at::rand({1});
    const at::Tensor before = state_of_generator();
    break_off_in(*block, loss);
    EXPECT_TRUE(same_bits(state_of_generator(), before))
        << "the forward() that threw leaves the generator changed";
    block->runs = 0;
    (*block)(random_input()).sum().backward();
    rank.observe("runs of forward() in the next call and its backward", block->runs);
  });
  expect_on_rank(run, 0, "runs of forward() in the next call and its backward", 2);
}

TEST(T4_6_checkpoint_activations, a_graph_that_was_kept_can_be_gone_over_after_a_throw) {
  const auto of_layer = [](bool checkpointed) {
    return [=](TestRank& rank) {
      torch::manual_seed(test_seed(4));
      const auto block = layer();
      if (checkpointed) checkpoint_activations(*block);
      const at::Tensor x = random_input();
      const at::Tensor loss = (*block)(x).square().mean();
      if (checkpointed) break_off_in(*block, loss);
      for (const char* passes : {" after one pass", " after two passes"}) {
        loss.backward({}, /*retain_graph=*/true);
        rank.observe(std::string("the gradient of a weight") + passes, block->first.grad());
        rank.observe(std::string("the gradient of the input") + passes, x.grad());
      }
    };
  };
  const RankRun expected = run_oracle(of_layer(false));
  const RankRun run = run_ranks(1, of_layer(true));
  for (const std::string passes : {" after one pass", " after two passes"}) {
    for (const char* of : {"the gradient of a weight", "the gradient of the input"})
      expect_on_rank(run, 0, of + passes, expected.at(0, of + passes));
  }
}

TEST(T4_6_checkpoint_activations, an_input_that_is_changed_in_place_is_an_error) {
  run_ranks(1, [](TestRank&) {
    const auto block = layer();
    checkpoint_activations(*block);
    at::Tensor x = random_input() * 1;  // no leaf
    (*block)(x).sum().backward();
    EXPECT_EQ(block->runs, 2) << "runs of forward() with an input that stays";
    x = random_input() * 1;
    const at::Tensor loss = (*block)(x).sum();
    {
      const at::NoGradGuard no_grad;
      x.zero_();
    }
    EXPECT_ANY_THROW(loss.backward()) << "backward computes with a changed input";
  });
}

TEST(T4_6_checkpoint_activations, the_graph_keeps_the_module_alive) {
  run_ranks(1, [](TestRank&) {
    auto block = layer();
    checkpoint_activations(*block);
    const std::weak_ptr<Module> watched = block;
    at::Tensor loss = (*block)(random_input()).sum();
    block.reset();
    ASSERT_FALSE(watched.expired()) << "the module is gone before backward";
    loss.backward();
    loss.reset();
    EXPECT_TRUE(watched.expired()) << "the module outlives the graph";
  });
}

}  // namespace
}  // namespace fsdp
