#include <c10/util/ScopeExit.h>
#include <c10/util/irange.h>
#include <optim/exact_sum.h>
#include <sharded_optimizer.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>
#include <stdexcept>

namespace fsdp {

ShardedOptimizer::ShardedOptimizer(std::vector<std::shared_ptr<FlatParameter>> units,
                                   std::vector<ParameterGroup> groups,
                                   std::shared_ptr<Communicator> comm)
    : units_(std::move(units)),
      groups_(std::move(groups)),
      comm_(std::move(comm)),
      pieces_(groups_.size()) {
  for (const auto u : c10::irange(units_.size())) {
    const FlatParameter& unit = *units_[u];
    const auto in_shard = [&](int64_t element) {
      return std::clamp<int64_t>(element - unit.shard_offset(), 0, unit.shard_numel());
    };
    for (const auto i : c10::irange(unit.parameters().size())) {
      const auto& [name, parameter] = unit.parameters()[i];
      if (!parameter.requires_grad()) continue;
      const int64_t begin = unit.layout().offsets[i];
      const int64_t end = round_up(begin + parameter.numel(), kAlignment);
      own(u, group_of(name, groups_), in_shard(begin), in_shard(end));
    }
  }
}

// Called in the order of the elements, so only the last piece can be the neighbour.
void ShardedOptimizer::own(size_t unit, size_t group, int64_t begin, int64_t end) {
  if (begin == end) return;
  if (!owners_.empty()) {
    const auto& [place, owner] = *owners_.rbegin();
    at::Tensor& last = pieces_[owner.group][owner.piece].parameter;
    if (place.first == unit && owner.group == group && place.second + last.numel() == begin) {
      last = units_[unit]->shard().slice(0, place.second, end);
      return;
    }
  }
  owners_[{unit, begin}] = {group, pieces_[group].size()};
  pieces_[group].push_back({units_[unit]->shard().slice(0, begin, end), {}, {}, {}, {}});
}

Piece* ShardedOptimizer::piece_at(size_t unit, int64_t element) {
  const auto after = owners_.upper_bound({unit, element});
  if (after == owners_.begin()) return nullptr;
  const auto& [place, owner] = *std::prev(after);
  Piece& piece = pieces_[owner.group][owner.piece];
  const bool inside = place.first == unit && element < place.second + piece.parameter.numel();
  return inside ? &piece : nullptr;
}

// Own all-gathers come first. Otherwise all ranks would wait here for each other.
void ShardedOptimizer::stop_gathering() {
  std::ranges::for_each(units_, [](const auto& unit) { unit->reshard(); });
  comm_->wait_for_readers();
}

void ShardedOptimizer::step() {
  const auto lacks_gradient = [](const auto& unit) {
    return unit->trainable() && !unit->sharded_gradient().defined();
  };
  if (const auto unit = std::ranges::find_if(units_, lacks_gradient); unit != units_.end())
    throw std::logic_error("step: unit " + (*unit)->unit() + " has no gradient");

  const at::NoGradGuard no_grad;
  stop_gathering();
  const auto let_go = c10::make_scope_exit([&] {
    for (Piece& piece : pieces_ | std::views::join)
      piece.gradient.reset();
  });
  for (const auto& [place, owner] : owners_) {
    Piece& piece = pieces_[owner.group][owner.piece];
    piece.gradient =
        units_[place.first]->sharded_gradient().narrow(0, place.second, piece.parameter.numel());
  }
  for (const auto group : c10::irange(groups_.size()))
    update(groups_[group].options, pieces_[group]);
}

void ShardedOptimizer::zero_grad() {
  std::ranges::for_each(units_, [](const auto& unit) { unit->drop_gradient(); });
}

double ShardedOptimizer::clip_grad_norm(double max_norm) {
  const auto nothing = at::zeros({kDigits}, at::dtype(at::kDouble).device(comm_->device()));
  const auto squares_of = [&](const std::shared_ptr<FlatParameter>& unit) {
    const at::Tensor& gradient = unit->sharded_gradient();
    return gradient.defined() ? sum_of_squares(gradient) : nothing;
  };
  const at::Tensor sum = std::transform_reduce(
      units_.begin(), units_.end(), nothing.clone(),
      [](const at::Tensor& a, const at::Tensor& b) { return a + b; }, squares_of);
  comm_->all_reduce(sum, kNorm).wait();
  const double norm = std::sqrt(value_of_sum(sum));
  scale_gradients(max_norm, norm);
  return norm;
}

void ShardedOptimizer::scale_gradients(double max_norm, double norm) {
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor < 1)) return;
  const at::NoGradGuard no_grad;
  for (const auto& unit : units_)
    if (at::Tensor gradient = unit->sharded_gradient(); gradient.defined()) gradient.mul_(factor);
}

}  // namespace fsdp
