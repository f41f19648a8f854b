#include <gtest/gtest.h>
#include <sequential.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/rnn.h>

#include <common/hook_events.h>
#include <common/in_a_process.h>

#include "kept_block.h"

// Tests hookable(), which wraps a module of LibTorch in an fsdp::Module.
namespace fsdp {
namespace {

TEST(Hookable, hookable_returns_a_module_with_the_tensors_and_names_of_the_wrapped_one) {
  in_a_process([] {
    struct Theirs : torch::nn::Module {
      Theirs() {
        scale = register_parameter("scale", at::full({3}, 2.0));
        frozen = register_parameter("frozen", at::ones({3}), /*requires_grad=*/false);
        steps = register_buffer("steps", at::zeros({}));
        inner = register_module("inner", torch::nn::Linear(3, 3));
      }
      at::Tensor forward(const at::Tensor& x) {
        steps += 1;
        return inner(x) * scale + frozen;
      }
      at::Tensor scale, frozen, steps;  // [3], [3], []
      torch::nn::Linear inner{nullptr};
    };
    const auto theirs = std::make_shared<Theirs>();
    const std::shared_ptr<Module> ours = hookable(theirs);
    EXPECT_EQ(ours->named_parameters().keys(), theirs->named_parameters().keys());
    EXPECT_EQ(ours->named_buffers().keys(), theirs->named_buffers().keys());
    EXPECT_EQ(ours->name(), theirs->name());
    EXPECT_FALSE(theirs->frozen.requires_grad());
    Events events;
    note_backward(*ours, events);
    const auto x = row();
    (*ours)(x).sum().backward();
    EXPECT_EQ(events, (Events{"opens", "closes"}));
    EXPECT_TRUE(ours->named_parameters()["scale"].grad().is_same(theirs->scale.grad()));
    EXPECT_EQ(ours->named_buffers()["steps"].item<int>(), 1);
  });
}

TEST(Hookable, train_eval_and_to_of_a_hookable_module_also_change_the_wrapped_module) {
  in_a_process([] {
    const torch::nn::BatchNorm1d theirs(3);
    const auto ours = hookable(theirs);
    ours->eval();
    EXPECT_FALSE(theirs->is_training());
    ours->train();
    EXPECT_TRUE(theirs->is_training());
    const auto recurrent = hookable(torch::nn::LSTM(3, 2));
    recurrent->to(at::kDouble);
    const auto x = at::ones({4, 1, 3}, at::kDouble);
    EXPECT_EQ(std::get<0>((*recurrent)(x, std::nullopt)).scalar_type(), at::kDouble);
  });
}

TEST(Hookable, a_hookable_torch_embedding_reads_no_parameters_in_backward) {
  in_a_process([] {
    EXPECT_FALSE(hookable(torch::nn::Embedding(5, 3))->reads_parameters_in_backward());
    EXPECT_TRUE(hookable(torch::nn::Linear(5, 3))->reads_parameters_in_backward());
  });
}

TEST_IN_A_PROCESS(
    Hookable, hookable_with_a_given_signature_wraps_a_module_whose_forward_has_default_arguments) {
  using States = std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>;
  Events events;
  const auto lstm = hookable<States(const at::Tensor&)>(torch::nn::LSTM(3, 2));
  note_backward(*lstm, events);
  const auto [out, state] = (*lstm)(at::ones({4, 1, 3}).set_requires_grad(true));
  EXPECT_EQ(out.sizes(), (at::IntArrayRef{4, 1, 2}));
  (out.sum() + std::get<1>(state).sum()).backward();
  EXPECT_EQ(events, (Events{"opens", "closes"}));
}

TEST(Hookable, hookable_returns_an_fsdp_module_unchanged) {
  in_a_process([] {
    const auto block = std::make_shared<KeptBlockImpl>(3);
    EXPECT_EQ(hookable(block), block);
    EXPECT_EQ(hookable(KeptBlock(block)), block);
    EXPECT_EQ(hookable(torch::nn::AnyModule(block)), block);
  });
}

}  // namespace
}  // namespace fsdp
