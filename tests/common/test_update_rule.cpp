#include <gtest/gtest.h>
#include <optim/update_rule.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <stdexcept>

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

// Cuts [n] tensors into pieces of the given sizes.
std::vector<Piece> cut(const at::Tensor& parameter, const at::Tensor& gradient,
                       std::vector<int64_t> sizes) {
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    Piece piece;
    piece.parameter = parameter.narrow(0, begin, size);
    piece.gradient = gradient.narrow(0, begin, size);
    pieces.push_back(piece);
    begin += size;
  }
  EXPECT_EQ(begin, parameter.numel());
  return pieces;
}

using Kind = OptimizerOptions::Kind;
class UpdateRule : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, UpdateRule, testing::Values(Kind::adamw, Kind::sgd),
                         [](const auto& info) {
                           return info.param == Kind::adamw ? "AdamW" : "SGD";
                         });

TEST_P(UpdateRule, gives_the_same_bits_however_the_elements_are_cut) {
  in_a_process([] {
    const int64_t n = 16 * 401;
    const auto start = torch::randn({n});
    std::vector<at::Tensor> results;
    for (const auto& sizes : std::vector<std::vector<int64_t>>{
             {n}, {16, n - 16}, {16 * 100, 16 * 7, 16 * 294}, {n - 32, 16, 16}}) {
      const auto parameter = start.clone(), gradient = torch::empty({n});
      auto pieces = cut(parameter, gradient, sizes);
      for (int step = 0; step < 5; ++step) {
        gradient.copy_(torch::sin(torch::arange(n) * (step + 1.0)));
        update(options_of(GetParam()), pieces);
      }
      results.push_back(parameter);
    }
    for (const auto& result : results)
      EXPECT_TRUE(torch::equal(result, results[0]));
    EXPECT_FALSE(torch::equal(start, results[0]));
  });
}

TEST_P(UpdateRule, agrees_with_the_optimizer_of_torch) {
  in_a_process([] {
    const auto options = options_of(GetParam());
    auto theirs = torch::randn({64}).set_requires_grad(true);
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    if (options.kind == Kind::adamw) {
      optimizer = std::make_unique<torch::optim::AdamW>(std::vector{theirs},
                                                        torch::optim::AdamWOptions(options.lr)
                                                            .weight_decay(options.weight_decay)
                                                            .betas({options.beta1, options.beta2})
                                                            .eps(options.eps));
    } else {
      optimizer = std::make_unique<torch::optim::SGD>(
          std::vector{theirs},
          torch::optim::SGDOptions(options.lr).weight_decay(options.weight_decay));
    }
    const auto ours = theirs.detach().clone(), gradient = torch::empty({64});
    auto pieces = cut(ours, gradient, {48, 16});
    for (int step = 0; step < 10; ++step) {
      gradient.normal_();
      theirs.mutable_grad() = gradient.clone();
      optimizer->step();
      update(options, pieces);
    }
    EXPECT_TRUE(torch::allclose(theirs.detach(), ours, 1e-6, 1e-6));
  });
}

TEST(UpdateRuleState, exists_only_for_adamw_and_counts_steps) {
  in_a_process([] {
    const auto parameter = torch::zeros({32}), gradient = torch::ones({32});
    auto pieces = cut(parameter, gradient, {16, 16});
    update(options_of(Kind::sgd), pieces);
    EXPECT_FALSE(pieces[0].exp_avg.defined());
    for (int step = 0; step < 3; ++step)
      update(options_of(Kind::adamw), pieces);
    for (const auto& piece : pieces) {
      EXPECT_EQ(piece.step.item<float>(), 3);
      EXPECT_EQ(piece.exp_avg.numel(), 16);
      EXPECT_EQ(piece.exp_avg_sq.numel(), 16);
    }
    EXPECT_TRUE(torch::equal(gradient, torch::ones({32})));
  });
}

TEST(UpdateRulePieces, are_refused_if_they_are_not_padded) {
  in_a_process([] {
    auto pieces = cut(torch::zeros({17}), torch::zeros({17}), {17});
    EXPECT_THROW(update(options_of(Kind::adamw), pieces), std::invalid_argument);
  });
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
