#include <optim/exact_sum.h>
#include <sharded_optimizer.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

bool uses_muon(const OptimizerOptions& options) {
  return options.kind == OptimizerOptions::Kind::muon;
}

// An implementation of ShardedOptimizer that updates pieces: one piece for each trainable parameter
// of which this rank owns a part.
class ShardedOptimizerImpl final : public ShardedOptimizer {
 public:
  ShardedOptimizerImpl(std::vector<std::shared_ptr<FlatParameter>> units,
                       std::vector<ParameterGroup> groups, std::shared_ptr<Communicator> comm);

  void step() override;
  void zero_grad() override;
  double clip_grad_norm(double max_norm) override { return clip_grad_norm(max_norm, 2); }
  double clip_grad_norm(double max_norm, double norm_type) override;
  std::vector<StateRange> state() override;

 private:
  struct Group {
    OptimizerOptions options;
    std::vector<Piece> pieces;
    // Element i: the unit that has pieces[i], a rank's piece of a parameter.
    std::vector<const FlatParameter*> units;
    // Element i: the index, in units[i], of the parameter of pieces[i].
    std::vector<size_t> indices;
  };
  // Returns this rank's sharded gradient of each trainable unit that has a gradient.
  std::vector<at::Tensor> gradients() const;

  // Functions for Muon, which is an extension of this task.
  void plan_muon(const std::vector<ParameterGroup>& groups);
  void update_round(const MatrixRound& round);
  // Calls `visit` for each piece of `unit` that Muon updates. Passes the options, the piece, and
  // the elements of `shard` at the place of the piece.
  template <class Visit>
  void for_muon_pieces(const FlatParameter& unit, const at::Tensor& shard, const Visit& visit);

  std::vector<std::shared_ptr<FlatParameter>> units_;
  std::vector<Group> groups_;
  std::shared_ptr<Communicator> comm_;
  std::vector<MatrixRound> rounds_;
};

ShardedOptimizerImpl::ShardedOptimizerImpl(std::vector<std::shared_ptr<FlatParameter>> units,
                                           std::vector<ParameterGroup> groups,
                                           std::shared_ptr<Communicator> comm)
    : units_(std::move(units)), comm_(std::move(comm)) {
  for (const ParameterGroup& group : groups)
    groups_.push_back({group.options, {}, {}, {}});
  for (const auto& unit : units_) {
    const int64_t begin = unit->shard_offset();
    const int64_t end = begin + unit->shard_numel();
    for (size_t i = 0; i < unit->parameters().size(); ++i) {
      const auto& [name, parameter] = unit->parameters()[i];
      if (!parameter.requires_grad()) continue;
      Group& group = groups_[group_of(name, groups)];
      // A piece must include the padding up to the next parameter, because its number of elements
      // must be a multiple of 16.
      const int64_t offset = unit->layout().offsets[i];
      const int64_t first = std::max(offset, begin);
      const int64_t last = std::min(offset + round_up(parameter.numel(), kAlignment), end);
      if (first >= last) continue;
      group.pieces.push_back({unit->shard().slice(0, first - begin, last - begin), {}, {}, {}, {}});
      group.units.push_back(unit.get());
      group.indices.push_back(i);
    }
  }
  plan_muon(groups);
}

void ShardedOptimizerImpl::plan_muon(const std::vector<ParameterGroup>& groups) {
  std::vector<UnitMatrices> all(units_.size());
  for (size_t u = 0; u < units_.size(); ++u) {
    all[u].unit = u;
    for (size_t i = 0; i < units_[u]->parameters().size(); ++i) {
      const auto& [name, parameter] = units_[u]->parameters()[i];
      if (!parameter.requires_grad()) continue;
      if (!uses_muon(groups[group_of(name, groups)].options)) continue;
      check_matrix(name, parameter.sizes().vec());
      const int64_t offset = units_[u]->layout().offsets[i];
      if (parameter.numel() > 0)
        all[u].matrices.push_back({name, offset, parameter.size(0), parameter.size(1)});
    }
  }
  rounds_ = plan_matrices(all, comm_->data_parallel_size());
}

template <class Visit>
void ShardedOptimizerImpl::for_muon_pieces(const FlatParameter& unit, const at::Tensor& shard,
                                           const Visit& visit) {
  for (auto& [options, pieces, units, indices] : groups_) {
    if (!uses_muon(options)) continue;
    allocate_state(options, pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (units[i] != &unit) continue;
      const int64_t begin = pieces[i].parameter.storage_offset() - unit.shard().storage_offset();
      const int64_t end = begin + pieces[i].parameter.numel();
      Piece piece = pieces[i];
      piece.gradient = unit.sharded_gradient().slice(0, begin, end);
      visit(options, piece, shard.slice(0, begin, end));
    }
  }
}

// Updates the matrices of one round by Muon. Gathers the averaged gradients of each unit. Each rank
// orthogonalizes its own matrices in place in the gathered tensor, and sets all other elements of
// this tensor to zero. So a reduce-scatter gives each rank the orthogonalized elements of its
// shard, with which apply_orthogonal_update() updates the pieces.
void ShardedOptimizerImpl::update_round(const MatrixRound& round) {
  // Index of a unit -> two tensors: the averaged gradients of this rank's shard, and those of all
  // shards.
  std::map<size_t, std::pair<at::Tensor, at::Tensor>> tensors;
  std::map<size_t, Handle> calls;
  for (const auto& [u, matrices] : round) {
    const FlatParameter& unit = *units_[u];
    if (!unit.sharded_gradient().defined()) continue;
    auto& [shard, whole] = tensors[u];
    shard = comm_->empty(unit.shard_numel());
    shard.zero_();
    for_muon_pieces(unit, shard, average_gradient);
    whole = comm_->empty(unit.layout().padded_numel);
    calls[u] = comm_->all_gather_into(whole, shard, unit.unit());
  }
  for (const auto& [u, matrices] : round) {
    if (!tensors.contains(u)) continue;
    calls[u].wait();
    const at::Tensor whole = tensors[u].second;
    at::Tensor owned = at::zeros({whole.numel()}, at::kBool);
    for (const OwnedMatrix& matrix : matrices) {
      if (matrix.owner != comm_->global_rank()) continue;
      const at::Tensor elements = whole.narrow(0, matrix.offset, matrix.numel());
      orthogonalize(elements.view({matrix.rows, matrix.columns}));
      owned.narrow(0, matrix.offset, matrix.numel()).fill_(true);
    }
    whole.masked_fill_(owned.logical_not(), 0);
    calls[u] = comm_->reduce_scatter_into(tensors[u].first, whole, units_[u]->unit());
  }
  for (const auto& [u, matrices] : round) {
    if (!tensors.contains(u)) continue;
    calls[u].wait();
    for_muon_pieces(*units_[u], tensors[u].first, apply_orthogonal_update);
  }
}

void ShardedOptimizerImpl::step() {
  at::NoGradGuard no_grad;
  for (const auto& unit : units_) {
    if (unit->trainable() && !unit->sharded_gradient().defined()) {
      throw std::logic_error("optimizer step: unit " + unit->unit() + " has no gradient");
    }
  }
  for (const auto& unit : units_)
    unit->reshard();
  comm_->wait_for_readers();
  for (auto& [options, pieces, units, indices] : groups_) {
    if (uses_muon(options)) continue;
    std::vector<Piece> with_gradient;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const at::Tensor& gradient = units[i]->sharded_gradient();
      // If the unit has no gradient, all its parameters were frozen after the constructor.
      if (!gradient.defined()) continue;
      // The gradient of this piece has the same offset in the sharded gradient as the piece has in
      // the shard.
      const at::Tensor& parameter = pieces[i].parameter;
      const int64_t begin = parameter.storage_offset() - units[i]->shard().storage_offset();
      std::vector<Piece> one{pieces[i]};
      allocate_state(options, one);
      pieces[i] = one[0];
      one[0].gradient = gradient.narrow(0, begin, parameter.numel());
      with_gradient.push_back(one[0]);
    }
    update(options, with_gradient);
  }
  for (const MatrixRound& round : rounds_)
    update_round(round);
}

void ShardedOptimizerImpl::zero_grad() {
  for (const auto& unit : units_)
    unit->clear_sharded_gradient();
}

std::vector<at::Tensor> ShardedOptimizerImpl::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const auto& unit : units_) {
    if (unit->trainable() && unit->sharded_gradient().defined())
      gradients.push_back(unit->sharded_gradient());
  }
  return gradients;
}

double ShardedOptimizerImpl::clip_grad_norm(double max_norm, double norm_type) {
  check_norm_type(norm_type);
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = this->gradients();
  const auto options = at::TensorOptions(at::kDouble).device(comm_->device());
  // Collective. Returns the sum, over all units and all ranks, of the exact sum of_gradient(g) of
  // each unit's gradient g.
  const auto total = [&](const auto& of_gradient) {
    std::vector<at::Tensor> sums{at::zeros({kDigits}, options)};
    std::transform(gradients.begin(), gradients.end(), std::back_inserter(sums), of_gradient);
    at::Tensor sum = at::stack(sums).sum(0);
    comm_->all_reduce(sum, kNorm).wait();
    return sum;
  };
  double norm{};
  if (norm_type == 2) {
    norm = std::sqrt(value_of_sum(total(sum_of_squares)));
  } else {
    std::vector<at::Tensor> magnitudes{at::zeros({1}, options)};
    for (const at::Tensor& gradient : gradients)
      magnitudes.push_back(largest_magnitude(gradient));
    const at::Tensor of_ranks = at::zeros({comm_->world_size()}, options);
    comm_->all_gather_into(of_ranks, at::cat(magnitudes).max().reshape({1}), kNorm).wait();
    norm = of_ranks.max().item<double>();
    if (!std::isinf(norm_type))
      norm = p_norm(norm_type, norm, total([&, largest = norm](const at::Tensor& gradient) {
                      return sum_of_powers(gradient, norm_type, largest);
                    }));
  }
  for (const at::Tensor& gradient : gradients)
    gradient.mul_(std::min(1.0, max_norm / (norm + 1e-6)));
  return norm;
}

std::vector<StateRange> ShardedOptimizerImpl::state() {
  for (const auto& unit : units_)
    unit->reshard();
  comm_->wait_for_readers();
  std::map<std::pair<const FlatParameter*, size_t>, const Piece*> trained;
  for (auto& [options, pieces, units, indices] : groups_) {
    allocate_state(options, pieces);
    for (size_t i = 0; i < pieces.size(); ++i)
      trained[{units[i], indices[i]}] = &pieces[i];
  }
  std::vector<StateRange> ranges;
  for (const auto& unit : units_) {
    const int64_t shard = unit->shard_offset();
    for (size_t i = 0; i < unit->parameters().size(); ++i) {
      // `offset`, `begin` and `end` are indices of elements in the unit's flat tensor.
      const int64_t offset = unit->layout().offsets[i];
      const int64_t numel = unit->parameters()[i].tensor.numel();
      const int64_t begin = std::clamp(shard, offset, offset + numel);
      const int64_t end = std::clamp(shard + unit->shard_numel(), offset, offset + numel);
      if (begin == end) continue;
      const at::Tensor value = unit->shard().slice(0, begin - shard, end - shard);
      StateRange range{unit->parameters()[i].name, begin - offset, end - offset, value, {}, {}, {}};
      if (const Piece* piece = trained[{unit.get(), i}]; piece && piece->step.defined()) {
        range.exp_avg = piece->exp_avg.slice(0, 0, end - begin);
        if (piece->exp_avg_sq.defined())
          range.exp_avg_sq = piece->exp_avg_sq.slice(0, 0, end - begin);
        range.step = piece->step;
      }
      ranges.push_back(range);
    }
  }
  return ranges;
}

}  // namespace

std::shared_ptr<ShardedOptimizer> make_sharded_optimizer(
    std::vector<std::shared_ptr<FlatParameter>> units, std::vector<ParameterGroup> groups,
    std::shared_ptr<Communicator> comm) {
  return std::make_shared<ShardedOptimizerImpl>(std::move(units), std::move(groups),
                                                std::move(comm));
}

}  // namespace fsdp
