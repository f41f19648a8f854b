#include <checkpoint_activations.h>
#include <testing/multi_rank.h>

#include "checkpointed_layers.h"

// Tests of output, gradients and random numbers, with and without checkpointed activations.
namespace fsdp {
namespace {

using Build = std::function<std::shared_ptr<Chain>()>;

// Expects that a chain of modules has the same results with and without checkpoints of its modules.
void expect_same_results(const Build& build, bool input_requires_grad = true) {
  const auto of_model = [&](bool checkpointed) {
    return [=](TestRank& rank) {
      torch::manual_seed(test_seed(4));
      const auto model = build();
      for (const auto& part : model->parts)
        if (checkpointed) checkpoint_activations(*part);
      observe_results(rank, *model, random_input().detach().set_requires_grad(input_requires_grad));
      rank.observe("runs of forward(), twice those without",
                   model->runs() * (checkpointed ? 1 : 2));
    };
  };
  const RankRun expected = run_oracle(of_model(false));
  expect_as(run_ranks(1, of_model(true)), expected);
}

TEST(T4_6_checkpointed_values, outputs_and_gradients_equal_those_without_checkpointing) {
  expect_same_results([] { return chain_of_layers(3); });
}

TEST(T4_6_checkpointed_values,
     values_equal_those_without_checkpoints_in_a_module_that_is_called_twice) {
  expect_same_results([] {
    const auto twice = layer();
    return chain({twice, layer(), twice});
  });
}

// A chain has one layer twice, so the layer's parameters have two names inside one checkpointed
// module.
TEST(T4_6_checkpointed_values,
     values_equal_those_without_checkpoints_if_a_parameter_has_two_names) {
  expect_same_results([] {
    const auto twice = layer();
    return chain({chain({twice, twice}), layer()});
  });
}

TEST(T4_6_checkpointed_values,
     values_equal_those_without_checkpoints_if_two_modules_share_a_parameter) {
  expect_same_results([] {
    const auto a = layer(), b = layer();
    b->register_parameter("tied", a->first);
    b->end = [tied = a->first](const at::Tensor& x) { return at::linear(x, tied); };
    return chain({a, b});
  });
}

TEST(T4_6_checkpointed_values,
     values_equal_those_without_checkpoints_if_parameters_are_frozen_unused_or_empty) {
  for (const int frozen : {0, 1, 2}) {
    expect_same_results([frozen] {
      const auto block =
          frozen == 0 ? layer_with_end([](const at::Tensor& x) { return x; }) : layer();
      block->register_parameter("empty", at::zeros({0}));
      if (frozen > 0) block->first.set_requires_grad(false);
      if (frozen > 1) block->second.set_requires_grad(false);
      return chain({layer(), block, layer()});
    });
  }
}

TEST(T4_6_checkpointed_values,
     values_equal_those_without_checkpoints_if_the_input_needs_no_gradient) {
  expect_same_results([] { return chain_of_layers(2); }, /*input_requires_grad=*/false);
}

TEST(T4_6_checkpointed_values,
     values_equal_those_without_checkpoints_if_forward_returns_a_view_or_its_input) {
  struct Pass : Module {
    at::Tensor forward(at::Tensor x) override { return x; }
  };
  struct Turn : Module {
    at::Tensor forward(at::Tensor x) override { return x.t(); }
  };
  expect_same_results([] {
    return chain({layer(), std::make_shared<Pass>(), layer(), std::make_shared<Turn>(), layer()});
  });
}

}  // namespace
}  // namespace fsdp
