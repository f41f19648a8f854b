#include <gtest/gtest.h>
#include <nn/checkpoint_activations.h>

#include <torch/csrc/autograd/custom_function.h>

#include "checkpointed_layers.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

// The loss, the gradients of `input` and of all parameters, and the next number of the generator.
std::vector<at::Tensor> results(Module& model, const at::Tensor& input) {
  torch::manual_seed(9);
  const at::Tensor loss = model(input).square().mean();
  loss.backward();
  std::vector<at::Tensor> results{loss.detach(), at::rand({1}), input.grad()};
  for (const at::Tensor& parameter : model.parameters())
    results.push_back(parameter.grad());
  return results;
}

using Build = std::function<std::shared_ptr<Module>()>;

void expect_same_results(const Build& build, bool input_requires_grad = true) {
  const auto of = [&](bool checkpointed) {
    torch::manual_seed(4);
    const auto model = build();
    if (checkpointed) checkpoint_blocks(*model, 1);
    return results(*model, random_input().detach().set_requires_grad(input_requires_grad));
  };
  const auto expected = of(false);
  EXPECT_GT(expected.size(), 4U);
  EXPECT_TRUE(equal(of(true), expected));
}

TEST(CheckpointedModule, gives_the_same_bits_and_draws_the_same_numbers) {
  in_a_process([] { expect_same_results([] { return rows({layer(), layer(), layer()}); }); });
}

TEST(CheckpointedModule, may_be_called_twice) {
  in_a_process([] {
    expect_same_results([] {
      const auto block = layer();
      return rows({block, layer(), block});
    });
  });
}

TEST(CheckpointedModule, may_share_a_parameter_and_use_one_twice) {
  in_a_process([] {
    expect_same_results([] {
      const auto a = layer(), b = layer();
      const at::Tensor tied = a->first;
      b->finish = [tied](const at::Tensor& x) { return at::linear(at::linear(x, tied), tied); };
      return rows({a, b, a});
    });
  });
}

TEST(CheckpointedModule, may_use_a_tensor_that_is_no_parameter_of_it) {
  in_a_process([] {
    const at::Tensor other = at::ones({kWidth}).set_requires_grad(true);
    expect_same_results(
        [&] { return rows({layer_with([&](const at::Tensor& x) { return x * other; })}); });
    EXPECT_TRUE(other.grad().defined());
  });
}

TEST(CheckpointedModule, may_have_frozen_parameters) {
  in_a_process([] {
    for (const int frozen : {1, 2}) {
      expect_same_results([&] {
        const auto block = layer();
        block->first.set_requires_grad(false);
        if (frozen == 2) block->second.set_requires_grad(false);
        return rows({layer(), block, layer()});
      });
    }
  });
}

TEST(CheckpointedModule, may_take_an_input_without_gradient) {
  in_a_process([] {
    expect_same_results([] { return rows({layer(), layer()}); }, /*input_requires_grad=*/false);
  });
}

TEST(CheckpointedModule, may_leave_parameters_unused_and_return_its_input_or_a_view) {
  in_a_process([] {
    const std::vector<std::function<at::Tensor(at::Tensor)>> finishes{
        [](const at::Tensor& x) { return x; },
        [](const at::Tensor& x) {
          return x.view({kWidth, kRows}).view({kRows, kWidth});
        },
        [](at::Tensor x) { return x.mul(2).sigmoid_(); }};
    for (const auto& finish : finishes)
      expect_same_results([&] { return rows({layer(), layer_with(finish), layer()}); });
    struct PassBlock : Module {
      at::Tensor forward(at::Tensor x) override { return x; }
    };
    expect_same_results([] { return rows({layer(), std::make_shared<PassBlock>(), layer()}); });
  });
}

TEST(CheckpointedModule, inside_another_one_is_a_part_of_it) {
  in_a_process([] {
    const auto outer = [](const auto& inner) {
      return rows(
          {std::make_shared<RowsBlock>(std::vector<std::shared_ptr<Module>>{inner, inner})});
    };
    expect_same_results([&] { return outer(layer()); });
    const auto inner = layer();
    const auto model = outer(inner);
    checkpoint_blocks(*model, 1);
    (*model)(random_input()).sum().backward();
    EXPECT_EQ(inner->begun, 4);
  });
}

TEST(CheckpointedModule, runs_again_once_and_only_as_far_as_backward_needs) {
  in_a_process([] {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor loss = (*block)(random_input()).sum();
    EXPECT_EQ(block->begun, 1);
    loss.backward();
    EXPECT_EQ(block->begun, 2);
    EXPECT_EQ(block->ended, 1) << "the last product is not needed";
  });
}

TEST(CheckpointedModule, runs_once_where_no_gradients_are_recorded) {
  in_a_process([] {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::NoGradGuard no_grad;
    EXPECT_FALSE((*block)(random_input()).requires_grad());
    EXPECT_EQ(block->begun, 1);
  });
}

TEST(CheckpointedModule, can_be_gone_over_again_if_the_graph_is_kept) {
  in_a_process([] {
    const auto block = layer();
    checkpoint_activations(*block);
    const at::Tensor loss = (*block)(random_input()).square().mean();
    loss.backward({}, /*retain_graph=*/true);
    const at::Tensor once = block->first.grad().clone();
    loss.backward();
    EXPECT_TRUE(torch::equal(block->first.grad(), once + once));
    EXPECT_EQ(block->begun, 2);
    EXPECT_THROW(loss.backward(), c10::Error) << "the graph was not kept";
  });
}

TEST(CheckpointedModule, has_gradients_of_gradients) {
  in_a_process([] {
    const auto second_order = [](bool checkpointed) {
      torch::manual_seed(4);
      const auto block = layer();
      if (checkpointed) checkpoint_activations(*block);
      const at::Tensor x = random_input();
      const auto loss = (*block)(x).square().mean();
      torch::autograd::grad({loss}, {x}, {}, true, true)[0].square().sum().backward();
      return std::vector<at::Tensor>{block->first.grad(), block->second.grad(), x.grad()};
    };
    EXPECT_TRUE(equal(second_order(true), second_order(false)));
  });
}

TEST(CheckpointedBlocks, are_every_kth_one_counted_once_each) {
  in_a_process([] {
    for (const int every : {1, 2, 3}) {
      std::vector<std::shared_ptr<LayerBlock>> blocks;
      for (int i = 0; i < 6; ++i)
        blocks.push_back(layer());
      const auto model = rows(
          {blocks[0], blocks[0], rows({blocks[1]}), blocks[2], blocks[3], blocks[4], blocks[5]});
      checkpoint_blocks(*model, every);
      (*model)(random_input()).sum().backward();
      for (int i = 0; i < 6; ++i) {
        const int calls = i == 0 ? 2 : 1;
        EXPECT_EQ(blocks[static_cast<size_t>(i)]->begun, (i + 1) % every == 0 ? 2 * calls : calls)
            << i;
      }
    }
  });
}

}  // namespace
}  // namespace fsdp
