#include <gtest/gtest.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <optim/muon.h>

#include <common/in_a_process.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

namespace fsdp {
namespace {

at::Tensor random(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed));
}

double factor(const at::Tensor& matrix) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(matrix.size(0), matrix.size(1))));
}

// Returns the orthogonalized matrix by Muon's definition: five Newton-Schulz iterations in fp64,
// with products of whole matrices.
at::Tensor by_definition(const at::Tensor& matrix) {
  at::Tensor x = matrix.to(at::kDouble);
  const bool high = x.size(0) > x.size(1);
  if (high) x = x.t();
  x = x / std::max(x.norm().item<double>(), 1e-7);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor square = x.mm(x.t());
    x = 3.4445 * x + (-4.7750 * square + 2.0315 * square.mm(square)).mm(x);
  }
  return factor(matrix) * (high ? x.t() : x);
}

TEST_IN_A_PROCESS(MuonArithmetic,
                  orthogonalize_follows_its_definition_for_high_wide_and_square_matrices) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {7, 7}, {3, 20}, {20, 3}, {1, 9}, {9, 1}, {1, 1}, {40, 33}}) {
    const at::Tensor matrix = random(sizes, 5);
    const at::Tensor expected = by_definition(matrix);
    orthogonalize(matrix);
    EXPECT_TRUE(at::allclose(matrix.to(at::kDouble), expected, 1e-4, 1e-5)) << matrix.sizes();
  }
}

TEST_IN_A_PROCESS(MuonArithmetic,
                  all_singular_values_of_an_update_are_0_6_to_1_3_times_muons_scale_factor) {
  const at::Tensor matrix = random({12, 30}, 6);
  orthogonalize(matrix);
  const at::Tensor values = at::linalg_svdvals(matrix) / factor(matrix);
  EXPECT_GT(values.min().item<double>(), 0.6);
  EXPECT_LT(values.max().item<double>(), 1.3);
}

TEST_IN_A_PROCESS(MuonArithmetic,
                  an_update_does_not_depend_on_the_place_of_its_matrix_or_on_its_scale) {
  const at::Tensor matrix = random({6, 11}, 7);
  const at::Tensor flat = at::full({16 + 66 + 30}, 9.0F);
  const at::Tensor inside = flat.narrow(0, 16, 66).view({6, 11});
  inside.copy_(matrix);
  const at::Tensor twice = matrix * 2;
  for (const at::Tensor& one : {matrix, inside, twice})
    orthogonalize(one);
  EXPECT_TRUE(inside.equal(matrix));
  EXPECT_TRUE(twice.equal(matrix));
  EXPECT_TRUE(flat.narrow(0, 0, 16).eq(9).all().item<bool>());
  EXPECT_TRUE(flat.narrow(0, 82, 30).eq(9).all().item<bool>());
}

TEST_IN_A_PROCESS(MuonArithmetic, an_update_of_zeros_is_zero_and_no_zero_of_an_update_is_negative) {
  const at::Tensor zeros = at::zeros({4, 6});
  orthogonalize(zeros);
  EXPECT_EQ(zeros.count_nonzero().item<int64_t>(), 0);
  const at::Tensor matrix = random({5, 8}, 8);
  matrix[2].zero_();
  matrix.select(1, 3).mul_(-0.0);
  orthogonalize(matrix);
  EXPECT_TRUE(matrix.select(1, 3).eq(0).all().item<bool>());
  EXPECT_FALSE(at::logical_and(matrix.eq(0), at::signbit(matrix)).any().item<bool>());
}

// Tests the elementwise steps of Muon's update. They run on a Piece, which has neighbouring
// elements of a rank's shard and can end inside a matrix.
TEST_IN_A_PROCESS(MuonArithmetic,
                  momentum_averages_and_elementwise_updates_follow_muons_definition) {
  OptimizerOptions options;
  options.kind = OptimizerOptions::Kind::muon;
  options.lr = 0.1;
  options.momentum = 0.75;
  options.weight_decay = 0.5;
  const at::Tensor before = random({32}, 9), gradient = random({32}, 10);
  std::vector<Piece> pieces{{before.clone(), gradient, {}, {}, {}}};
  allocate_state(options, pieces);
  EXPECT_FALSE(pieces[0].exp_avg_sq.defined());
  at::Tensor average = at::zeros({32});
  const at::Tensor update = at::empty({32});
  for (int step = 1; step <= 2; ++step) {
    average_gradient(options, pieces[0], update);
    average = 0.75 * average + 0.25 * gradient;
    EXPECT_TRUE(at::allclose(pieces[0].exp_avg, average));
    EXPECT_TRUE(at::allclose(update, 0.25 * gradient + 0.75 * average));
    EXPECT_EQ(pieces[0].step.item<double>(), step);
  }
  options.lr_factor = std::make_shared<double>(0.5);  // a learning-rate schedule sets lr_factor
  apply_orthogonal_update(options, pieces[0], update);
  EXPECT_TRUE(at::allclose(pieces[0].parameter, (1 - 0.05 * 0.5) * before - 0.05 * update));
}

TEST_IN_A_PROCESS(MuonArithmetic,
                  orthogonalize_allocates_at_its_peak_the_bytes_that_orthogonalize_bytes_returns) {
  counting_allocator::install();
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{8, 24}, {24, 8}, {16, 16}, {121, 35}, {35, 121}}) {
    const at::Tensor matrix = random(sizes, 11);
    const int64_t before = live_bytes::now().total;
    live_bytes::take_peak();
    orthogonalize(matrix);
    EXPECT_EQ(live_bytes::take_peak() - before, orthogonalize_bytes(sizes[0], sizes[1]));
  }
}

}  // namespace
}  // namespace fsdp
