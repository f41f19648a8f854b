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
  int64_t offset;  // index of the matrix's first element in the flat parameter of its unit
  int64_t rows, columns;
  // Global rank of the rank that orthogonalizes the matrix; this rank may be in another replica.
  int owner{};

  int64_t numel() const { return rows * columns; }
};

// The matrices of one unit that Muon updates, in the order of the unit's parameters.
struct UnitMatrices {
  size_t unit;  // index of the unit among the units of the model
  std::vector<OwnedMatrix> matrices;
};

// Units whose matrices are gathered, orthogonalized and returned together, so that all ranks have
// work at the same time.
using MatrixRound = std::vector<UnitMatrices>;

// Returns the rounds of an update, and sets the owners of the matrices.
// - A unit without matrices is in no round. The other units keep their order.
// - A round ends at the first unit with which it has at least as many matrices as there are ranks,
//   because a larger round only needs more memory.
// - In a round, matrices get their owners in the order of their cost, the most expensive matrix
//   first. The owner is the rank that has the least work in this round. If several ranks have, it
//   is the one of them that has the least work in all rounds so far; if several still have, the
//   lowest of these ranks.
// All ranks compute the same result from the sizes of the model's parameters.
std::vector<MatrixRound> plan_matrices(std::vector<UnitMatrices> units, int ranks);

// Returns the rounds for a model whose layout has the sizes of the parameters: plan_matrices() of
// the trainable parameters in the groups whose optimizer is Muon. Throws what check_matrix() and
// group_of() throw.
std::vector<MatrixRound> matrix_rounds(const ShardLayout& layout,
                                       const std::vector<ParameterGroup>& groups, int ranks);

// Throws std::invalid_argument, which names the parameter, unless `sizes` has two dimensions.
void check_matrix(const std::string& parameter, const std::vector<int64_t>& sizes);

}  // namespace fsdp
