#include <gtest/gtest.h>
#include <optim/update_rule.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "expect_text.h"
#include "in_a_process.h"

namespace fsdp {
namespace {

OptimizerOptions options_of(OptimizerOptions::Kind kind) {
  OptimizerOptions options;
  options.kind = kind;
  options.lr = 1e-2;
  options.weight_decay = 0.1;
  return options;
}

// [n] tensors in two pieces, of which the second has 16 elements.
std::vector<Piece> in_pieces(const at::Tensor& parameter, const at::Tensor& gradient) {
  std::vector<Piece> pieces(2);
  const std::vector<int64_t> sizes{parameter.numel() - 16, 16};
  const auto parameters = parameter.split(sizes), gradients = gradient.split(sizes);
  for (size_t i = 0; i < 2; ++i) {
    pieces[i].parameter = parameters[i];
    pieces[i].gradient = gradients[i];
  }
  return pieces;
}

using Kind = OptimizerOptions::Kind;

std::unique_ptr<torch::optim::Optimizer> optimizer_of_torch(const OptimizerOptions& options,
                                                            const at::Tensor& parameter) {
  const std::vector<at::Tensor> all{parameter};
  if (options.kind == Kind::adamw)
    return std::make_unique<torch::optim::AdamW>(all, torch::optim::AdamWOptions(options.lr)
                                                          .weight_decay(options.weight_decay)
                                                          .betas({options.beta1, options.beta2})
                                                          .eps(options.eps));
  return std::make_unique<torch::optim::SGD>(
      all, torch::optim::SGDOptions(options.lr).weight_decay(options.weight_decay));
}

TEST_IN_A_PROCESS(UpdateRule, agrees_with_the_optimizer_of_torch) {
  for (const Kind kind : {Kind::adamw, Kind::sgd}) {
    const OptimizerOptions options = options_of(kind);
    const at::Tensor theirs = torch::randn({64}).set_requires_grad(true);
    const auto optimizer = optimizer_of_torch(options, theirs);
    const auto ours = theirs.detach().clone(), gradient = torch::empty({64});
    auto pieces = in_pieces(ours, gradient);
    for (int step = 0; step < 10; ++step) {
      gradient.normal_();
      theirs.mutable_grad() = gradient.clone();
      optimizer->step();
      update(options, pieces);
      EXPECT_TRUE(torch::equal(gradient, theirs.grad()));
    }
    EXPECT_TRUE(torch::allclose(theirs.detach(), ours, 1e-6, 1e-6));
  }
}

TEST_IN_A_PROCESS(UpdateRule, refuses_pieces_that_are_not_padded) {
  auto pieces = in_pieces(torch::zeros({33}), torch::zeros({33}));
  EXPECT_THROW(update(options_of(Kind::adamw), pieces), std::invalid_argument);
}

TEST(ParameterGroups, a_parameter_belongs_to_the_first_group_whose_pattern_matches) {
  const std::vector<ParameterGroup> groups{{"ln|bias$", {}}, {"^h\\.0\\.", {}}, {"", {}}};
  EXPECT_EQ(group_of("h.0.ln_1.weight", groups), 0u);
  EXPECT_EQ(group_of("h.3.attn.c_attn.bias", groups), 0u);
  EXPECT_EQ(group_of("h.0.attn.c_attn.weight", groups), 1u);
  EXPECT_EQ(group_of("wte.weight", groups), 2u);
}

TEST(ParameterGroups, an_error_names_the_parameter_or_the_pattern) {
  const auto refusal = [](const std::string& pattern) {
    return error_of<std::invalid_argument>([&] { group_of("wte.weight", {{pattern, {}}}); });
  };
  EXPECT_CONTAINS(refusal("ln"), "wte.weight");
  EXPECT_CONTAINS(refusal("("), "'('");
}

}  // namespace
}  // namespace fsdp
