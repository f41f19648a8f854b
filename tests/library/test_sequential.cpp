#include <gtest/gtest.h>
#include <sequential.h>
#include <torch/nn/modules/activation.h>

#include <string>
#include <vector>

#include <common/hook_events.h>
#include <common/in_a_process.h>

#include "kept_block.h"

namespace fsdp {
namespace {

// Registers a hook that appends "forward" to `events` at each call of `module` that runs its hooks.
void note_forward(Module& module, Events& events) {
  module.register_forward_pre_hook([&](Module&, const at::Tensor&) {
    events.push_back("forward");
    return at::Tensor();
  });
}

using Keys = std::vector<std::string>;

TEST(Sequential, a_sequential_calls_its_modules_in_turn_with_their_hooks) {
  in_a_process([] {
    Events events;
    KeptBlock block(3);
    const auto shared = std::make_shared<KeptBlockImpl>(3);
    Sequential chain(torch::nn::Linear(3, 3), block, torch::nn::Tanh(), shared);
    note_backward(*block, events);
    note_backward(*shared, events);
    const auto x = row();
    const auto y = chain(x);
    const auto linear = chain.parameters();
    const auto expected = at::linear(
        at::linear(at::linear(x, linear[0], linear[1]), block->weight).tanh(), shared->weight);
    EXPECT_TRUE(at::equal(y, expected));
    y.sum().backward();
    EXPECT_EQ(events, (Events{"opens", "closes", "opens", "closes"}));
  });
}

TEST_IN_A_PROCESS(Sequential, an_empty_sequential_returns_its_input) {
  Sequential none;
  const auto x = row();
  EXPECT_TRUE(none(x).is_same(x));
}

TEST(Sequential, modules_of_an_fsdp_sequential_have_the_names_as_in_torchs_sequential) {
  in_a_process([] {
    const torch::nn::Sequential theirs(torch::nn::Linear(3, 3), torch::nn::Tanh(),
                                       torch::nn::Linear(3, 2));
    const Sequential ours(torch::nn::Linear(3, 3), torch::nn::Tanh(), torch::nn::Linear(3, 2));
    EXPECT_EQ(ours.named_parameters().keys(), theirs->named_parameters().keys());
    EXPECT_EQ(ours.named_children().keys(), (Keys{"0", "1", "2"}));
    Sequential named;
    named.push_back("first", torch::nn::Linear(3, 3));
    named.push_back(KeptBlock(3));
    EXPECT_EQ(named.named_parameters().keys(), (Keys{"first.weight", "first.bias", "1.weight"}));
  });
}

TEST(Sequential, hookable_makes_an_fsdp_sequential_from_torchs_sequential) {
  in_a_process([] {
    torch::nn::Sequential theirs;
    theirs->push_back("in", torch::nn::Linear(3, 3));
    theirs->push_back(KeptBlock(3));
    const auto ours = hookable(theirs);
    EXPECT_TRUE(at::equal((*ours)(row()), theirs->forward(row())));
    EXPECT_EQ(ours->named_parameters().keys(), theirs->named_parameters().keys());
    Events events;
    for (const auto& child : ours->children())
      note_forward(dynamic_cast<Module&>(*child), events);
    (*ours)(row());
    EXPECT_EQ(events, (Events{"forward", "forward"}));
  });
}

}  // namespace
}  // namespace fsdp
