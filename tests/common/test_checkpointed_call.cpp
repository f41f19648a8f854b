#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <nn/checkpoint_activations.h>
#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <set>

#include "checkpointed_layers.h"
#include "in_a_process.h"

// What a call of a checkpointed module keeps, when it runs again, and what it refuses.
namespace fsdp {
namespace {

int64_t live_rest() {
  return live_bytes::now()[MemoryClass::rest];
}

TEST(CheckpointedCall, keeps_its_input_and_the_state_of_the_generator) {
  in_a_process([] {
    counting_allocator::install();
    const auto kept_by = [](const std::shared_ptr<LayerBlock>& block) {
      const at::Tensor x = random_input();
      const int64_t before = live_rest();
      const at::Tensor y = (*block)(x);
      return live_rest() - before - kBytes;  // of y
    };
    const int64_t state = at::globalContext().defaultGenerator(c10::kCPU).get_state().numel();
    const auto block = layer();
    EXPECT_EQ(kept_by(block), 3 * kBytes) << "tanh's result, the mask, dropout's result";
    checkpoint_activations(*block);
    EXPECT_EQ(kept_by(block), state);
  });
}

TEST(CheckpointedCall, needs_no_more_memory_in_backward_and_leaves_none) {
  in_a_process([] {
    counting_allocator::install();
    const auto block = layer();
    const at::Tensor x = random_input();
    const auto peak_of_backward = [&] {
      const int64_t before = live_rest();
      at::Tensor loss = (*block)(x).sum();
      live_bytes::reset(Phase::backward);
      live_bytes::enter(Phase::backward);
      loss.backward();
      const int64_t peak = live_bytes::peak(Phase::backward)[MemoryClass::rest] - before;
      live_bytes::enter(Phase::init);
      loss.reset();
      block->zero_grad();
      x.mutable_grad().reset();
      EXPECT_EQ(live_rest(), before);
      return peak;
    };
    const int64_t plain = peak_of_backward();
    checkpoint_activations(*block);
    const int64_t states = 2 * at::globalContext().defaultGenerator(c10::kCPU).get_state().numel();
    ASSERT_LT(states, kBytes);
    EXPECT_LE(peak_of_backward(), plain + states) << "what was recomputed lives too long";
  });
}

// A recompute with a backward of its own would show another pass: the hooks of FSDP would take it
// for the next one, and would reduce gradients before all have come.
TEST(CheckpointedCall, gives_its_gradients_in_the_pass_that_asked_for_them) {
  in_a_process([] {
    const auto first = layer(), second = layer();
    std::set<int> passes;
    int seen = 0;
    const auto note = [&] {
      passes.insert(torch::autograd::get_current_graph_task_id());
      ++seen;
    };
    for (const auto& block : {first, second}) {
      checkpoint_activations(*block);
      register_post_accumulate_grad_hook(block->first, note);
      register_post_accumulate_grad_hook(block->second, note);
      block->register_full_backward_pre_hook([&](Module&) { note(); });
      block->register_full_backward_hook([&](Module&) { note(); });
    }
    (*second)((*first)(random_input())).sum().backward();
    EXPECT_EQ(seen, 8);
    EXPECT_EQ(passes.size(), 1U);
    EXPECT_FALSE(passes.contains(-1));
  });
}

TEST(CheckpointedCall, runs_its_hooks_in_the_same_order_and_as_often) {
  in_a_process([] {
    const auto events = [](bool checkpointed) {
      std::vector<std::string> events;
      const auto first = layer(), second = layer();
      for (const auto& [name, block] : {std::pair("first", first), std::pair("second", second)}) {
        if (checkpointed) checkpoint_activations(*block);
        const auto note = [&events, name = std::string(name)](const std::string& what) {
          return [&events, event = name + " " + what](auto&&...) {
            events.push_back(event);
            return at::Tensor();
          };
        };
        block->register_forward_pre_hook(note("pre"));
        block->register_forward_hook(note("post"));
        block->register_full_backward_pre_hook(note("opens"));
        block->register_full_backward_hook(note("closes"));
        register_post_accumulate_grad_hook(block->first, note("weight"));
      }
      (*second)((*first)(random_input())).sum().backward();
      return events;
    };
    EXPECT_EQ(events(false).size(), 10U);
    EXPECT_EQ(events(true), events(false));
  });
}

TEST(CheckpointedCall, that_throws_in_backward_can_be_gone_over_again) {
  in_a_process([] {
    torch::manual_seed(4);
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor x = random_input();
    const at::Tensor loss = (*block)(x).square().mean();
    block->finish = [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no more"); };
    const at::Tensor state = at::globalContext().defaultGenerator(c10::kCPU).get_state();
    try {
      loss.backward({}, /*retain_graph=*/true);
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "no more");
    }
    EXPECT_TRUE(torch::equal(at::globalContext().defaultGenerator(c10::kCPU).get_state(), state));
    block->finish = nullptr;
    loss.backward();
    torch::manual_seed(4);
    EXPECT_TRUE(equal({block->first.grad(), block->second.grad(), x.grad()}, [] {
      const auto plain = layer();
      const at::Tensor input = random_input();
      (*plain)(input).square().mean().backward();
      return std::vector<at::Tensor>{plain->first.grad(), plain->second.grad(), input.grad()};
    }()));
  });
}

// What a backward says after `change`, which runs between the call and the backward.
std::string refusal(const std::function<void(LayerBlock& block, at::Tensor& input)>& change) {
  const auto block = layer();
  checkpoint_activations(*block);
  at::Tensor input = random_input() * 1;  // no leaf
  const at::Tensor loss = (*block)(input).sum();
  change(*block, input);
  try {
    loss.backward();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(CheckpointedCall, refuses_to_go_back_with_other_values_than_those_of_the_call) {
  in_a_process([] {
    const auto zero = [](at::Tensor tensor) {
      const at::NoGradGuard no_grad;
      tensor.zero_();
    };
    const auto finish_with = [](auto finish) {
      return [finish](LayerBlock& block, const at::Tensor&) { block.finish = finish; };
    };
    const std::vector<std::pair<std::string, std::string>> refusals{
        {refusal([&](LayerBlock&, at::Tensor& input) { zero(input); }), "its input was changed"},
        {refusal([&](LayerBlock& block, at::Tensor&) { zero(block.second); }),
         "was changed in place after the call"},
        {refusal(finish_with([](const at::Tensor& x) { return x; })), "saves fewer tensors"},
        {refusal(finish_with([](const at::Tensor& x) { return x.slice(0, 1).exp(); })),
         "saves other tensors"}};
    for (const auto& [said, expected] : refusals) {
      EXPECT_NE(said.find("checkpoint_activations: "), std::string::npos) << said;
      EXPECT_NE(said.find("LayerBlock"), std::string::npos) << said;
      EXPECT_NE(said.find(expected), std::string::npos) << said;
    }
  });
}

TEST(CheckpointedCall, refuses_what_autograd_refuses_without_it) {
  in_a_process([] {
    const auto block = layer_with([](const at::Tensor& x) {
      const at::Tensor y = x.tanh();  // saves y
      y.mul_(2);
      return y + x.exp();  // saves something after it
    });
    EXPECT_THROW((*block)(random_input()).sum().backward(), c10::Error);
    checkpoint_activations(*block);
    EXPECT_THROW((*block)(random_input()).sum().backward(), std::logic_error);
  });
}

TEST(CheckpointedCall, must_be_held_by_a_shared_pointer) {
  in_a_process([] {
    LayerBlock block;
    EXPECT_THROW(checkpoint_activations(block), std::invalid_argument);
  });
}

TEST(CheckpointedCall, lives_as_long_as_the_graph) {
  in_a_process([] {
    auto block = layer();
    checkpoint_activations(*block);
    const std::weak_ptr<Module> watched = block;
    at::Tensor loss = (*block)(random_input()).sum();
    block.reset();
    EXPECT_FALSE(watched.expired());
    loss.backward();
    loss.reset();
    EXPECT_TRUE(watched.expired());
  });
}

}  // namespace
}  // namespace fsdp
