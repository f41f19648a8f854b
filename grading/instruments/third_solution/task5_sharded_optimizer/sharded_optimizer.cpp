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

std::vector<at::Tensor> ShardedOptimizer::gradients() const {
  std::vector<at::Tensor> defined;
  for (const auto& unit : units_)
    if (unit->sharded_gradient().defined()) defined.push_back(unit->sharded_gradient());
  return defined;
}

at::Tensor ShardedOptimizer::zero_sum(int64_t numel) const {
  return at::zeros({numel}, at::dtype(at::kDouble).device(comm_->device()));
}

at::Tensor ShardedOptimizer::summed(at::Tensor exact_sum) const {
  comm_->all_reduce(exact_sum, kNorm).wait();
  return exact_sum;
}

double ShardedOptimizer::scale_gradients(double max_norm, double norm) const {
  const at::NoGradGuard no_grad;
  const double factor = max_norm / (norm + 1e-6);
  if (factor < 1) {
    for (const at::Tensor& gradient : gradients())
      gradient.mul_(factor);
  }
  return norm;
}

double ShardedOptimizer::clip_grad_norm(double max_norm) {
  at::Tensor sum = zero_sum(kDigits);
  for (const at::Tensor& gradient : gradients())
    sum += sum_of_squares(gradient);
  return scale_gradients(max_norm, std::sqrt(value_of_sum(summed(sum))));
}

}  // namespace fsdp
