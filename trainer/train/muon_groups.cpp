#include <base/text.h>
#include <optim/matrix_owners.h>
#include <train/muon_groups.h>

#include <algorithm>
#include <regex>
#include <stdexcept>
#include <vector>

namespace fsdp {
namespace {

// Returns the parameter's name with a * in place of each number between dots: h.*.mlp.c_fc.weight
// for h.3.mlp.c_fc.weight.
std::string kind_of(const std::string& parameter) {
  static const std::regex number(R"((^|\.)[0-9]+(?=\.|$))");
  return std::regex_replace(parameter, number, "$1*");
}

// Numbers and names of the matrices that Muon updates.
struct Matrices {
  int64_t count{};
  // The names of the matrices as kind_of() returns them, each once, in the order of the model.
  std::vector<std::string> kinds;
  std::vector<int64_t> by_rank;  // for each rank, how many matrices the rank orthogonalizes

  void add(const OwnedMatrix& matrix) {
    ++count;
    ++by_rank[static_cast<size_t>(matrix.owner)];
    const std::string kind = kind_of(matrix.parameter);
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  }
  std::string of_each_rank() const {
    const auto [least, most] = std::ranges::minmax(by_rank);
    return std::to_string(least) + (least < most ? " to " + std::to_string(most) : "");
  }
};

}  // namespace

std::string describe_muon(const TrainConfig& config, const ShardLayout& layout) {
  if (config.optimizer.kind != OptimizerOptions::Kind::muon) return "";
  // Says whether the matrices are divided among the ranks; if not, every rank updates all matrices.
  const bool shares = config.ranks.mode == Mode::fsdp;
  const int ranks = shares ? config.ranks.world : 1;
  Matrices matrices{.count = 0, .kinds = {}, .by_rank = std::vector<int64_t>(ranks)};
  try {
    for (const auto& round : matrix_rounds(layout, config.optimizer.parameter_groups(), ranks))
      for (const UnitMatrices& unit : round)
        for (const OwnedMatrix& matrix : unit.matrices)
          matrices.add(matrix);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("--adamw " + config.optimizer.adamw + ": " + error.what());
  }
  if (matrices.count == 0)
    throw std::invalid_argument("--adamw " + config.optimizer.adamw +
                                ": leaves no parameter to Muon; give --optimizer adamw, or a "
                                "pattern that fewer names match");
  const int64_t others = static_cast<int64_t>(layout.parameters.size()) - matrices.count;
  return "muon: " + std::to_string(matrices.count) +
         (matrices.count == 1 ? " matrix (" : " matrices (") + in_a_row(matrices.kinds, "and") +
         "), " + (shares ? matrices.of_each_rank() + " on each rank" : "all on each rank") +
         "; adamw: " + counted(others, "other parameter");
}

}  // namespace fsdp
