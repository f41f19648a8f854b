#include <gtest/gtest.h>
#include <optim/update_rule.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

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

// Cuts a parameter [n] and its gradient [n] into two pieces. The second one has 16 elements.
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

TEST_IN_A_PROCESS(UpdateRule, updates_of_adamw_and_sgd_agree_with_torchs_optimizers) {
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

TEST_IN_A_PROCESS(UpdateRule,
                  update_throws_if_the_numel_of_a_piece_of_a_shard_is_not_a_multiple_of_16) {
  auto pieces = in_pieces(torch::zeros({33}), torch::zeros({33}));
  EXPECT_THROW(update(options_of(Kind::adamw), pieces), std::invalid_argument);
}

// A MomentStore that returns parts of `memory` and notes which elements of `memory` were used.
struct NotingStore : MomentStore {
  explicit NotingStore(int64_t numel) : memory(at::zeros({numel})) {}
  at::Tensor zeros(int64_t numel) override {
    const at::Tensor part = memory.narrow(0, given, numel);
    given += numel;
    return part;
  }
  void used(const at::Tensor& part) override {
    const auto begin = (part.data_ptr<float>() - memory.data_ptr<float>());
    uses.emplace_back(begin, begin + part.numel());
  }
  at::Tensor memory;  // [numel]
  int64_t given{};
  // For each call of used(): the first element of the part in `memory`, and the end of the part.
  std::vector<std::pair<int64_t, int64_t>> uses{};
};

// The second piece is longer than 2^22 elements, which is the largest number that update()
// processes at a time.
TEST_IN_A_PROCESS(
    UpdateRule,
    an_update_uses_each_part_of_a_moment_store_once_and_gives_the_same_bits_as_without_a_store) {
  const int64_t most = int64_t{1} << 22;
  const std::vector<int64_t> sizes{32, 2 * most + 48, 16};
  const int64_t numel = 32 + 2 * most + 48 + 16;
  const auto trained = [&](const std::shared_ptr<NotingStore>& store) {
    OptimizerOptions options = options_of(Kind::adamw);
    options.moments = store;
    const at::Tensor parameter = at::ones({numel}), gradient = at::empty({numel});
    std::vector<Piece> pieces;
    const auto parameters = parameter.split(sizes), gradients = gradient.split(sizes);
    for (size_t i = 0; i < sizes.size(); ++i)
      pieces.push_back({parameters[i], gradients[i], {}, {}, {}});
    for (int step = 0; step < 2; ++step) {
      gradient.copy_(at::linspace(-1, 1 + step, numel));
      if (store) store->uses.clear();
      update(options, pieces);
    }
    for (const Piece& piece : pieces)
      EXPECT_EQ(piece.step.item<float>(), 2);
    return parameter;
  };
  const auto store = std::make_shared<NotingStore>(2 * numel);
  EXPECT_TRUE(trained(store).equal(trained(nullptr)));
  EXPECT_EQ(store->given, 2 * numel);
  int64_t end = 0;
  auto sorted = store->uses;
  std::ranges::sort(sorted);
  for (const auto& [begin, next] : sorted) {
    EXPECT_EQ(begin, end) << "a part was used twice, or one was left out";
    EXPECT_LE(next - begin, most) << "elements that are in memory at a time";
    end = next;
  }
  EXPECT_EQ(end, 2 * numel);
  // Each of two moments is used in parts of 32, 2^22, 2^22, 48 and 16 elements.
  EXPECT_EQ(store->uses.size(), 2 * 5U);
}

TEST_IN_A_PROCESS(UpdateRule,
                  the_bits_of_an_update_do_not_depend_on_how_the_elements_are_cut_into_pieces) {
  const int64_t n = int64_t{16} * 401;
  const at::Tensor start = torch::randn({n});
  for (const Kind kind : {Kind::adamw, Kind::sgd}) {
    std::vector<at::Tensor> results;
    for (const auto& sizes : std::vector<std::vector<int64_t>>{
             {n}, {16, n - 16}, {16 * 100, 16 * 7, 16 * 294}, {n - 32, 16, 16}}) {
      const at::Tensor parameter = start.clone(), gradient = torch::empty({n});
      std::vector<Piece> pieces;
      const auto parameters = parameter.split(sizes), gradients = gradient.split(sizes);
      for (size_t i = 0; i < sizes.size(); ++i)
        pieces.push_back({parameters[i], gradients[i], {}, {}, {}});
      for (int step = 0; step < 5; ++step) {
        gradient.copy_(torch::sin(torch::arange(n) * (step + 1.0)));
        update(options_of(kind), pieces);
      }
      EXPECT_EQ(pieces[0].exp_avg.defined(), kind == Kind::adamw);
      results.push_back(parameter);
    }
    for (const at::Tensor& result : results)
      EXPECT_TRUE(torch::equal(result, results[0]));
    EXPECT_FALSE(torch::equal(start, results[0]));
  }
}

}  // namespace
}  // namespace fsdp
