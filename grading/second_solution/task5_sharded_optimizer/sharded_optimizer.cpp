#include <optim/exact_sum.h>
#include <sharded_optimizer.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace fsdp {

ShardedOptimizer::ShardedOptimizer(std::vector<std::shared_ptr<FlatParameter>> units,
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
      // With the padding up to the next parameter, as pieces have to be.
      const int64_t offset = unit->layout().offsets[i];
      const int64_t first = std::max(offset, begin);
      const int64_t last = std::min(offset + round_up(parameter.numel(), kAlignment), end);
      if (first >= last) continue;
      group.pieces.push_back({unit->shard().slice(0, first - begin, last - begin), {}, {}, {}, {}});
      group.units.push_back(unit.get());
      group.indices.push_back(i);
    }
  }
}

void ShardedOptimizer::step() {
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
    for (size_t i = 0; i < pieces.size(); ++i) {
      const at::Tensor& parameter = pieces[i].parameter;  // where in the shard, so in the gradient
      const int64_t begin = parameter.storage_offset() - units[i]->shard().storage_offset();
      pieces[i].gradient = units[i]->sharded_gradient().narrow(0, begin, parameter.numel());
    }
    update(options, pieces);
    for (Piece& piece : pieces)
      piece.gradient.reset();
  }
}

void ShardedOptimizer::zero_grad() {
  for (const auto& unit : units_)
    unit->drop_gradient();
}

std::vector<at::Tensor> ShardedOptimizer::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const auto& unit : units_) {
    if (unit->trainable() && unit->sharded_gradient().defined())
      gradients.push_back(unit->sharded_gradient());
  }
  return gradients;
}

double ShardedOptimizer::clip_grad_norm(double max_norm) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums{
      at::zeros({kDigits}, at::TensorOptions(at::kDouble).device(comm_->device()))};
  for (const at::Tensor& gradient : gradients())
    sums.push_back(sum_of_squares(gradient));
  const at::Tensor all = at::stack(sums).sum(0);
  comm_->all_reduce(all, kNorm).wait();
  const double norm = std::sqrt(value_of_sum(all));
  const double scale = std::min(1.0, max_norm / (norm + 1e-6));
  for (const at::Tensor& gradient : gradients())
    gradient.mul_(scale);
  return norm;
}

}  // namespace fsdp
