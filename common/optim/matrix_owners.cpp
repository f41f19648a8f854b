#include <optim/matrix_owners.h>
#include <optim/muon.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace fsdp {
namespace {

size_t count_matrices(const MatrixRound& round) {
  size_t count = 0;
  for (const UnitMatrices& unit : round)
    count += unit.matrices.size();
  return count;
}

int64_t cost(const OwnedMatrix& matrix) {
  return orthogonalize_flops(matrix.rows, matrix.columns);
}

// Sets the owner of each matrix of `round`, which is the rank that orthogonalizes the matrix.
// `total`: the work of each rank in the earlier rounds; this function adds the work of this round.
void set_owners(MatrixRound& round, std::vector<int64_t>& total) {
  std::vector<OwnedMatrix*> matrices;
  for (UnitMatrices& unit : round)
    for (OwnedMatrix& matrix : unit.matrices)
      matrices.push_back(&matrix);
  std::ranges::stable_sort(
      matrices, [](const OwnedMatrix* a, const OwnedMatrix* b) { return cost(*a) > cost(*b); });
  std::vector<int64_t> in_round(total.size());
  for (OwnedMatrix* matrix : matrices) {
    size_t least = 0;
    for (size_t rank = 1; rank < total.size(); ++rank)
      if (std::tie(in_round[rank], total[rank]) < std::tie(in_round[least], total[least]))
        least = rank;
    matrix->owner = static_cast<int>(least);
    in_round[least] += cost(*matrix);
    total[least] += cost(*matrix);
  }
}

}  // namespace

std::vector<MatrixRound> plan_matrices(std::vector<UnitMatrices> units, int ranks) {
  std::vector<MatrixRound> rounds;
  // Says whether the next unit with matrices begins a new MatrixRound. It does if the last round
  // has at least one matrix for each rank.
  bool ended = true;
  for (UnitMatrices& unit : units) {
    if (unit.matrices.empty()) continue;
    if (ended) rounds.emplace_back();
    rounds.back().push_back(std::move(unit));
    ended = count_matrices(rounds.back()) >= static_cast<size_t>(ranks);
  }
  std::vector<int64_t> total(static_cast<size_t>(ranks));
  for (MatrixRound& round : rounds)
    set_owners(round, total);
  return rounds;
}

std::vector<MatrixRound> matrix_rounds(const ShardLayout& layout,
                                       const std::vector<ParameterGroup>& groups, int ranks) {
  std::vector<UnitMatrices> units;
  for (size_t unit = 0; unit < layout.units.size(); ++unit)
    units.push_back({unit, {}});
  for (const auto& parameter : layout.parameters) {
    if (!parameter.trainable || !is_muon(groups[group_of(parameter.name, groups)])) continue;
    check_matrix(parameter.name, parameter.sizes);
    if (parameter.numel == 0) continue;
    units[parameter.unit].matrices.push_back(
        {parameter.name, parameter.offset, parameter.sizes[0], parameter.sizes[1]});
  }
  return plan_matrices(std::move(units), ranks);
}

void check_matrix(const std::string& parameter, const std::vector<int64_t>& sizes) {
  if (sizes.size() == 2) return;
  throw std::invalid_argument("Muon updates matrices, and parameter '" + parameter + "' has " +
                              std::to_string(sizes.size()) +
                              " dimensions; put it into a group of AdamW");
}

}  // namespace fsdp
