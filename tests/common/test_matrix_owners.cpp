#include <gtest/gtest.h>
#include <optim/matrix_owners.h>
#include <optim/muon.h>

#include <common/expect_text.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace fsdp {
namespace {

// Returns `count` units, each with the matrices of a block of GPT-2 of width `d`, and before them
// one unit without matrices.
std::vector<UnitMatrices> blocks(size_t count, int64_t d) {
  std::vector<UnitMatrices> units{{0, {}}};
  for (size_t unit = 1; unit <= count; ++unit)
    units.push_back({unit,
                     {{"qkv", 0, 3 * d, d},
                      {"proj", 3 * d * d, d, d},
                      {"fc", 4 * d * d, 4 * d, d},
                      {"out", 8 * d * d, d, 4 * d}}});
  return units;
}

std::vector<OwnedMatrix> matrices_of(const MatrixRound& round) {
  std::vector<OwnedMatrix> all;
  for (const UnitMatrices& unit : round)
    all.insert(all.end(), unit.matrices.begin(), unit.matrices.end());
  return all;
}

TEST(MatrixOwners,
     plan_matrices_puts_each_matrix_into_exactly_one_round_and_keeps_the_order_of_units) {
  for (const int ranks : {1, 2, 3, 4, 5, 8, 64}) {
    std::vector<size_t> units;
    size_t matrices = 0;
    for (const MatrixRound& round : plan_matrices(blocks(6, 8), ranks)) {
      for (const UnitMatrices& unit : round)
        units.push_back(unit.unit);
      for (const OwnedMatrix& matrix : matrices_of(round)) {
        ++matrices;
        EXPECT_GE(matrix.owner, 0);
        EXPECT_LT(matrix.owner, ranks);
      }
    }
    EXPECT_EQ(units, (std::vector<size_t>{1, 2, 3, 4, 5, 6})) << ranks << " ranks";
    EXPECT_EQ(matrices, 24);
  }
}

TEST(MatrixOwners, plan_matrices_ends_a_round_at_the_first_unit_with_which_each_rank_has_a_matrix) {
  const auto sizes = [](int ranks) {
    std::vector<size_t> sizes;
    for (const MatrixRound& round : plan_matrices(blocks(5, 8), ranks))
      sizes.push_back(round.size());
    return sizes;
  };
  EXPECT_EQ(sizes(1), (std::vector<size_t>{1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes(4), (std::vector<size_t>{1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes(5), (std::vector<size_t>{2, 2, 1}));
  EXPECT_EQ(sizes(8), (std::vector<size_t>{2, 2, 1}));
  EXPECT_EQ(sizes(100), (std::vector<size_t>{5}));
}

// In a round, the work of each rank is at most the mean over the ranks plus the work of the largest
// matrix.
TEST(MatrixOwners, plan_matrices_balances_the_work_of_the_ranks_in_each_round_and_over_all_rounds) {
  for (const int ranks : {2, 3, 4, 8}) {
    std::vector<int64_t> total(static_cast<size_t>(ranks));
    int64_t largest = 0, all = 0;
    for (const MatrixRound& round : plan_matrices(blocks(24, 16), ranks)) {
      std::vector<int64_t> in_round(static_cast<size_t>(ranks));
      int64_t sum = 0;
      for (const OwnedMatrix& matrix : matrices_of(round)) {
        const int64_t work = orthogonalize_flops(matrix.rows, matrix.columns);
        in_round[static_cast<size_t>(matrix.owner)] += work;
        total[static_cast<size_t>(matrix.owner)] += work;
        largest = std::max(largest, work);
        sum += work;
      }
      all += sum;
      EXPECT_LE(std::ranges::max(in_round), sum / ranks + largest) << ranks << " ranks";
    }
    EXPECT_LE(std::ranges::max(total), all / ranks * 5 / 4) << ranks << " ranks";
  }
}

ShardLayout layout_of(std::vector<ShardLayout::Parameter> parameters) {
  ShardLayout layout;
  layout.units = {{"root", 160, true, true}};
  layout.parameters = std::move(parameters);
  return layout;
}

TEST(MatrixOwners, matrix_rounds_has_only_the_trainable_nonempty_matrices_that_muon_updates) {
  OptimizerOptions muon;
  muon.kind = OptimizerOptions::Kind::muon;
  const ShardLayout layout = layout_of({{"embedding", 0, 0, 12, true, {3, 4}},
                                        {"fixed", 0, 16, 12, false, {4, 3}},
                                        {"empty", 0, 32, 0, true, {0, 3}},
                                        {"weight", 0, 32, 6, true, {2, 3}}});
  const auto rounds = matrix_rounds(layout, {{"embedding", {}}, {"", muon}}, 2);
  ASSERT_EQ(rounds.size(), 1);
  const auto matrices = matrices_of(rounds[0]);
  ASSERT_EQ(matrices.size(), 1);
  EXPECT_EQ(matrices[0].parameter, "weight");
  EXPECT_EQ(matrices[0].offset, 32);
  EXPECT_EQ(matrices[0].rows, 2);
  EXPECT_EQ(matrices[0].columns, 3);
  EXPECT_TRUE(matrix_rounds(layout, {{"", {}}}, 2).empty());
}

TEST(MatrixOwners, check_matrix_throws_and_names_a_parameter_of_muon_that_is_not_a_matrix) {
  EXPECT_EQ(
      error_of<std::invalid_argument>([] { check_matrix("ln.weight", {7}); }),
      "Muon updates matrices, and parameter 'ln.weight' has 1 dimensions; put it into a group "
      "of AdamW");
  EXPECT_CONTAINS(error_of<std::invalid_argument>([] {
                    check_matrix("conv", {2, 3, 4});
                  }),
                  "3 dimensions");
}

}  // namespace
}  // namespace fsdp
