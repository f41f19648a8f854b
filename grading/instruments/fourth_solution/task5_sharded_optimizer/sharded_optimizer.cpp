#include <comm/call.h>
#include <optim/exact_sum.h>
#include <optim/shard_layout.h>
#include <sharded_optimizer.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Neighbours of one unit with the same group; no group if they are frozen.
struct Run {
  std::optional<size_t> group;
  int64_t begin, end;  // [elements] from the unit's start, multiples of kAlignment
};

std::vector<Run> runs_of(const FlatParameter& unit, const std::vector<ParameterGroup>& groups) {
  std::vector<Run> runs;
  for (size_t i = 0; i < unit.parameters().size(); ++i) {
    const auto& [name, tensor] = unit.parameters()[i];
    const int64_t begin = unit.layout().offsets[i];
    const int64_t end = round_up(begin + tensor.numel(), kAlignment);
    const auto group =
        tensor.requires_grad() ? std::optional(group_of(name, groups)) : std::nullopt;
    if (!runs.empty() && runs.back().group == group) {
      runs.back().end = end;
    } else {
      runs.push_back({group, begin, end});
    }
  }
  return runs;
}

}  // namespace

ShardedOptimizer::Elements ShardedOptimizer::Elements::owned(std::shared_ptr<FlatParameter> unit,
                                                             int64_t begin, int64_t end) {
  const int64_t first = std::max(begin, unit->shard_offset());
  const int64_t last = std::min(end, unit->shard_offset() + unit->shard_numel());
  return {std::move(unit), first, std::max(first, last)};
}

bool ShardedOptimizer::Elements::contain(const Elements& other) const {
  return unit == other.unit && begin <= other.begin && other.end <= end;
}

at::Tensor ShardedOptimizer::Elements::of(const at::Tensor& shard) const {
  return shard.narrow(0, begin - unit->shard_offset(), end - begin);
}

void ShardedOptimizer::OwnedGroup::add(Elements elements) {
  pieces_.emplace_back().parameter = elements.of(elements.unit->shard());
  places_.push_back(std::move(elements));
}

// The gradient of the next step is another tensor, so no piece keeps this one.
void ShardedOptimizer::OwnedGroup::step() {
  for (size_t i = 0; i < pieces_.size(); ++i)
    pieces_[i].gradient = places_[i].of(places_[i].unit->sharded_gradient());
  update(options_, pieces_);
  for (Piece& piece : pieces_)
    piece.gradient.reset();
}

ShardedOptimizer::ShardedOptimizer(std::vector<std::shared_ptr<FlatParameter>> units,
                                   std::vector<ParameterGroup> groups,
                                   std::shared_ptr<Communicator> comm)
    : units_(std::move(units)), groups_(std::move(groups)), comm_(std::move(comm)) {
  for (const ParameterGroup& group : groups_)
    owned_.emplace_back(group.options);
  for (const auto& unit : units_) {
    for (const auto& [group, begin, end] : runs_of(*unit, groups_)) {
      Elements elements = Elements::owned(unit, begin, end);
      if (group && elements.begin < elements.end) owned_[*group].add(std::move(elements));
    }
  }
}

// Every rank waits for its own all-gathers first, so that nobody waits for a rank that waits.
void ShardedOptimizer::take_shards_back() {
  for (const auto& unit : units_)
    unit->reshard();
  comm_->wait_for_readers();
}

void ShardedOptimizer::step() {
  const auto without_gradient = std::ranges::find_if(units_, [](const auto& unit) {
    return unit->trainable() && !unit->sharded_gradient().defined();
  });
  if (without_gradient != units_.end()) {
    throw std::logic_error("step: unit '" + (*without_gradient)->unit() + "' has no gradient");
  }
  take_shards_back();
  std::ranges::for_each(owned_, &OwnedGroup::step);
}

void ShardedOptimizer::zero_grad() {
  for (const auto& unit : units_)
    unit->drop_gradient();
}

std::vector<at::Tensor> ShardedOptimizer::gradients() const {
  std::vector<at::Tensor> defined;
  for (const auto& unit : units_) {
    if (unit->sharded_gradient().defined()) defined.push_back(unit->sharded_gradient());
  }
  return defined;
}

at::Tensor ShardedOptimizer::sum_over_gradients(const Term& term) const {
  const auto options = at::dtype(at::kDouble).device(comm_->device());
  at::Tensor sum = at::zeros({kDigits}, options);
  for (const at::Tensor& gradient : gradients())
    sum += term(gradient);
  return sum;
}

double ShardedOptimizer::clip(double norm, double max_norm) const {
  const double factor = max_norm / (norm + 1e-6);
  if (factor < 1) {
    for (const at::Tensor& gradient : gradients())
      gradient.mul_(factor);
  }
  return norm;
}

double ShardedOptimizer::clip_grad_norm(double max_norm) {
  const at::NoGradGuard no_grad;
  const at::Tensor sum = sum_over_gradients(sum_of_squares);
  comm_->all_reduce(sum, kNorm).wait();
  return clip(std::sqrt(value_of_sum(sum)), max_norm);
}

}  // namespace fsdp
