#pragma once

#include <optim/shard_layout.h>
#include <optim/update_rule.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// A matrix that Muon updates, and the rank that orthogonalizes it.
struct OwnedMatrix {
  std::string parameter;
  int64_t offset;  // [elements] in the flat parameter of its unit
  int64_t rows, columns;
  int owner{};  // among all ranks, also those of other replicas

  int64_t numel() const { return rows * columns; }
};

// The matrices of one unit, in the order of its parameters.
struct UnitMatrices {
  size_t unit;  // its index among the units of the model
  std::vector<OwnedMatrix> matrices;
};

// Units whose matrices are gathered, orthogonalized and returned together, so that all ranks have
// work at the same time.
using MatrixRound = std::vector<UnitMatrices>;

// Returns the rounds of an update, and sets the owners.
// - A unit without matrices is in no round. The other units keep their order.
// - A round ends at the first unit with which it has at least as many matrices as there are ranks,
//   because a larger round only needs more memory.
// - In a round, the most expensive matrix first, each matrix gets the rank that has the least work
//   in this round. Of several, it is the one that has the least work in all rounds so far, and of
//   these the lowest rank.
// All ranks compute the same result from the sizes of the model's parameters.
std::vector<MatrixRound> plan_matrices(std::vector<UnitMatrices> units, int ranks);

// Returns the rounds for a model of which the sizes are known: plan_matrices() of the parameters in
// those groups whose optimizer is Muon. Throws what check_matrix() and group_of() throw.
std::vector<MatrixRound> matrix_rounds(const ShardLayout& layout,
                                       const std::vector<ParameterGroup>& groups, int ranks);

// Throws std::invalid_argument, which names the parameter, unless `sizes` are those of a matrix.
void check_matrix(const std::string& parameter, const std::vector<int64_t>& sizes);

}  // namespace fsdp
