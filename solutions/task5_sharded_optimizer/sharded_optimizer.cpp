#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sharded_optimizer_impl.h"

namespace fsdp {

std::shared_ptr<ShardedOptimizer> make_sharded_optimizer(
    std::vector<std::shared_ptr<FlatParameter>> units, std::vector<ParameterGroup> groups,
    std::shared_ptr<Communicator> comm) {
  return std::make_shared<ShardedOptimizerImpl>(std::move(units), std::move(groups),
                                                std::move(comm));
}

ShardedOptimizerImpl::ShardedOptimizerImpl(std::vector<std::shared_ptr<FlatParameter>> units,
                                           std::vector<ParameterGroup> groups,
                                           std::shared_ptr<Communicator> comm)
    : units_(std::move(units)),
      groups_(std::move(groups)),
      comm_(std::move(comm)),
      runs_(groups_.size()) {
  for (const auto& unit : units_)
    add_runs(unit);
  for (const auto& runs : runs_) {
    auto& pieces = pieces_.emplace_back();
    for (const Run& run : runs) {
      pieces.push_back({run.unit->shard().narrow(0, run.begin, run.numel), {}, {}, {}, {}});
    }
  }
  rounds_ = plan_rounds();
}

void ShardedOptimizerImpl::add_runs(const std::shared_ptr<FlatParameter>& unit) {
  if (unit->shard().scalar_type() != at::kFloat) {
    throw std::invalid_argument("unit " + unit->unit() + " is not fp32; use one of torch's " +
                                "optimizers with model.parameters()");
  }
  const auto& parameters = unit->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].tensor.requires_grad()) continue;
    auto& runs = runs_[group_of(parameters[i].name, groups_)];
    // Offsets are from the beginning of the shard. `numel` includes the padding up to the next
    // multiple of kAlignment.
    const int64_t offset = unit->layout().offsets[i] - unit->shard_offset();
    const int64_t numel = round_up(parameters[i].tensor.numel(), kAlignment);
    const int64_t begin = std::max<int64_t>(offset, 0);
    const int64_t end = std::min(offset + numel, unit->shard_numel());
    if (begin >= end) continue;
    const bool adjoins =
        !runs.empty() && runs.back().unit == unit && runs.back().begin + runs.back().numel == begin;
    if (adjoins) {
      runs.back().numel += end - begin;
    } else {
      runs.push_back({unit, begin, end - begin});
    }
  }
}

void ShardedOptimizerImpl::step() {
  for (const auto& unit : units_) {
    if (unit->trainable() && !unit->sharded_gradient().defined()) {
      throw std::logic_error("optimizer step: unit " + unit->unit() +
                             " has no gradient; run a backward pass first");
    }
  }
  stop_reading();
  for (size_t group = 0; group < groups_.size(); ++group)
    if (!is_muon(groups_[group])) step_group(group);
  step_matrices();
}

void ShardedOptimizerImpl::step_group(size_t group) {
  std::vector<Piece> pieces;
  std::vector<size_t> indices;  // of `pieces`; a unit frozen since the constructor has none
  for (size_t i = 0; i < runs_[group].size(); ++i) {
    const Run& run = runs_[group][i];
    if (!run.unit->sharded_gradient().defined()) continue;
    indices.push_back(i);
    pieces.push_back(pieces_[group][i]);
    pieces.back().gradient = run.unit->sharded_gradient().narrow(0, run.begin, run.numel);
  }
  update(groups_[group].options, pieces);
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].gradient.reset();  // a view that stays would keep the gradient alive past zero_grad()
    pieces_[group][indices[i]] = pieces[i];  // its first update has allocated its state
  }
}

void ShardedOptimizerImpl::stop_reading() {
  for (const auto& unit : units_)
    unit->reshard();
  // Comes after reshard(), which waits for this rank's own all-gathers: if two ranks first waited
  // for each other's readers, they would wait for ever.
  comm_->wait_for_readers();
}

void ShardedOptimizerImpl::zero_grad() {
  for (const auto& unit : units_)
    unit->clear_sharded_gradient();
}

double ShardedOptimizerImpl::clip_grad_norm(double max_norm) {
  at::Tensor total = at::zeros({kDigits}, at::TensorOptions(at::kDouble).device(comm_->device()));
  for (const auto& unit : units_) {
    if (unit->sharded_gradient().defined()) total += sum_of_squares(unit->sharded_gradient());
  }
  comm_->all_reduce(total, kNorm).wait();  // of squares: norms do not add up
  return clip(max_norm, std::sqrt(value_of_sum(total)));
}

double ShardedOptimizerImpl::clip(double max_norm, double norm) const {
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1.0) {
    for (const auto& unit : units_) {
      if (unit->sharded_gradient().defined()) unit->sharded_gradient().mul_(scale);
    }
  }
  return norm;
}

}  // namespace fsdp
