#include <sharded_optimizer.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

struct Span {
  int64_t begin, end;  // [elements]
  bool empty() const { return begin >= end; }
};

Span intersection(Span a, Span b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Of a unit's flat tensor.
Span shard_span(const FlatParameter& unit) {
  return {unit.shard_offset(), unit.shard_offset() + unit.shard_numel()};
}

Span parameter_span(const FlatParameter& unit, size_t index) {
  const int64_t begin = unit.layout().offsets[index];
  return {begin, begin + unit.parameters()[index].tensor.numel()};
}

Span with_padding(Span span) {
  return {span.begin, round_up(span.end, kAlignment)};
}

std::vector<at::Tensor> gradients_of(const std::vector<std::shared_ptr<FlatParameter>>& units) {
  std::vector<at::Tensor> gradients;
  for (const auto& unit : units)
    if (unit->sharded_gradient().defined()) gradients.push_back(unit->sharded_gradient());
  return gradients;
}

at::Tensor zero_sum(const Communicator& comm, int64_t numel) {
  return at::zeros({numel}, at::dtype(at::kDouble).device(comm.device()));
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(std::vector<std::shared_ptr<FlatParameter>> units,
                                   std::vector<ParameterGroup> groups,
                                   std::shared_ptr<Communicator> comm)
    : units_(std::move(units)),
      groups_(std::move(groups)),
      comm_(std::move(comm)),
      pieces_(groups_.size()) {
  for (size_t unit = 0; unit < units_.size(); ++unit)
    add_pieces(unit);
}

// A parameter's part of the shard goes into the piece before it if it is the neighbour of this
// piece and has the same options.
void ShardedOptimizer::add_pieces(size_t unit) {
  const FlatParameter& flat = *units_[unit];
  const at::NoGradGuard no_grad;
  const size_t first = slots_.size();
  for (size_t i = 0; i < flat.parameters().size(); ++i) {
    if (!flat.parameters()[i].tensor.requires_grad()) continue;
    const size_t group = group_of(flat.parameters()[i].name, groups_);
    const Span span = intersection(with_padding(parameter_span(flat, i)), shard_span(flat));
    if (span.empty()) continue;
    const int64_t begin = span.begin - flat.shard_offset();
    const int64_t end = span.end - flat.shard_offset();
    const bool joins =
        slots_.size() > first && slots_.back().group == group && slots_.back().end == begin;
    if (joins) {
      slots_.back().end = end;
    } else {
      slots_.push_back({unit, group, pieces_[group].size(), begin, end});
      pieces_[group].emplace_back();
    }
    const Slot& slot = slots_.back();
    pieces_[group].back().parameter = flat.shard().slice(0, slot.begin, slot.end);
  }
}

// All own all-gathers are waited for before the readers are: if every rank waited for its readers
// first, all would wait for each other.
void ShardedOptimizer::prepare_to_write() {
  for (const auto& unit : units_)
    unit->reshard();
  comm_->wait_for_readers();
}

void ShardedOptimizer::step() {
  for (const auto& unit : units_) {
    if (unit->trainable() && !unit->sharded_gradient().defined())
      throw std::logic_error("step: unit " + unit->unit() + " has no gradient");
  }
  prepare_to_write();
  for (const auto& [unit, group, index, begin, end] : slots_)
    pieces_[group][index].gradient = units_[unit]->sharded_gradient().slice(0, begin, end);
  for (size_t group = 0; group < groups_.size(); ++group)
    update(groups_[group].options, pieces_[group]);
  for (const Slot& slot : slots_)
    pieces_[slot.group][slot.index].gradient.reset();
}

void ShardedOptimizer::zero_grad() {
  for (const auto& unit : units_)
    unit->drop_gradient();
}

at::Tensor ShardedOptimizer::summed(at::Tensor exact_sum) const {
  comm_->all_reduce(exact_sum, kNorm).wait();
  return exact_sum;
}

double ShardedOptimizer::scale_gradients(double max_norm, double norm) const {
  const at::NoGradGuard no_grad;
  const double factor = max_norm / (norm + 1e-6);
  if (factor < 1) {
    for (const at::Tensor& gradient : gradients_of(units_))
      gradient.mul_(factor);
  }
  return norm;
}

double ShardedOptimizer::clip_grad_norm(double max_norm) {
  at::Tensor sum = zero_sum(*comm_, kDigits);
  for (const at::Tensor& gradient : gradients_of(units_))
    sum += sum_of_squares(gradient);
  return scale_gradients(max_norm, std::sqrt(value_of_sum(summed(sum))));
}

double ShardedOptimizer::clip_grad_norm(double max_norm, double norm_type) {
  check_norm_type(norm_type);
  if (norm_type == 2) return clip_grad_norm(max_norm);
  at::Tensor own = zero_sum(*comm_, 1);
  for (const at::Tensor& gradient : gradients_of(units_))
    own = at::maximum(own, largest_magnitude(gradient));
  const at::Tensor of_ranks = zero_sum(*comm_, comm_->world_size());
  comm_->all_gather_into(of_ranks, own, kNorm).wait();
  const auto largest = of_ranks.max().item<double>();

  at::Tensor sum = zero_sum(*comm_, kDigits);
  if (std::isfinite(norm_type)) {
    for (const at::Tensor& gradient : gradients_of(units_))
      sum += sum_of_powers(gradient, norm_type, largest);
    sum = summed(sum);
  }
  return scale_gradients(max_norm, p_norm(norm_type, largest, sum));
}

const ShardedOptimizer::Slot* ShardedOptimizer::slot_at(size_t unit, int64_t element) const {
  const auto found = std::ranges::find_if(slots_, [&](const Slot& slot) {
    return slot.unit == unit && slot.begin <= element && element < slot.end;
  });
  return found == slots_.end() ? nullptr : &*found;
}

std::vector<StateRange> ShardedOptimizer::state() {
  prepare_to_write();
  const at::NoGradGuard no_grad;
  for (size_t group = 0; group < groups_.size(); ++group)
    allocate_state(groups_[group].options, pieces_[group]);
  std::vector<StateRange> ranges;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const FlatParameter& flat = *units_[unit];
    for (size_t i = 0; i < flat.parameters().size(); ++i) {
      const Span parameter = parameter_span(flat, i);
      const Span owned = intersection(parameter, shard_span(flat));
      if (owned.empty()) continue;
      const int64_t begin = owned.begin - flat.shard_offset();
      const int64_t end = owned.end - flat.shard_offset();
      StateRange range{flat.parameters()[i].name,
                       owned.begin - parameter.begin,
                       owned.end - parameter.begin,
                       flat.shard().slice(0, begin, end),
                       {},
                       {},
                       {}};
      const Slot* slot = slot_at(unit, begin);
      if (slot && pieces_[slot->group][slot->index].step.defined()) {
        const Piece& piece = pieces_[slot->group][slot->index];
        range.exp_avg = piece.exp_avg.slice(0, begin - slot->begin, end - slot->begin);
        range.exp_avg_sq = piece.exp_avg_sq.slice(0, begin - slot->begin, end - slot->begin);
        range.step = piece.step;
      }
      ranges.push_back(std::move(range));
    }
  }
  return ranges;
}

}  // namespace fsdp
