#include <sharded_optimizer.h>

#include <algorithm>

namespace fsdp {

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
      const auto& [name, parameter] = flat.parameters()[i];
      // In the shard: where the parameter begins, and this rank's part of it.
      const int64_t first = flat.layout().offsets[i] - flat.shard_offset();
      const int64_t begin = std::max<int64_t>(first, 0);
      const int64_t end = std::min(first + parameter.numel(), flat.shard_numel());
      if (begin >= end) continue;
      StateRange range{name, begin - first, end - first, flat.shard().slice(0, begin, end), {}, {},
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
