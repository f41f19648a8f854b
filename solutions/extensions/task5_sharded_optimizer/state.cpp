#include <sharded_optimizer_impl.h>

#include <algorithm>

namespace fsdp {

std::vector<StateRange> ShardedOptimizerImpl::state() {
  stop_reading();
  for (size_t group = 0; group < groups_.size(); ++group)
    allocate_state(groups_[group].options, pieces_[group]);
  std::vector<StateRange> ranges;
  for (const auto& unit : units_) {
    for (size_t i = 0; i < unit->parameters().size(); ++i) {
      const auto& [name, parameter] = unit->parameters()[i];
      // The beginning of this rank's shard, in the coordinates of the parameter.
      const int64_t shard = unit->shard_offset() - unit->layout().offsets[i];
      const int64_t begin = std::max<int64_t>(shard, 0);
      const int64_t end = std::min(shard + unit->shard_numel(), parameter.numel());
      if (begin >= end) continue;
      const at::Tensor value = unit->shard().slice(0, begin - shard, end - shard);
      ranges.push_back({name, begin, end, value, {}, {}, {}});
      add_moments(ranges.back(), *unit, begin - shard);
    }
  }
  return ranges;
}

// Adds the moments and the step count of `range`, which begins at `begin` in the unit's shard.
void ShardedOptimizerImpl::add_moments(StateRange& range, const FlatParameter& unit,
                                       int64_t begin) const {
  // Searches all groups instead of calling group_of(), which throws for a frozen parameter that no
  // group matches.
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (size_t i = 0; i < runs_[group].size(); ++i) {
      const Run& run = runs_[group][i];
      const Piece& piece = pieces_[group][i];
      const bool holds =
          run.unit.get() == &unit && run.begin <= begin && begin < run.begin + run.numel;
      if (!holds || !piece.step.defined()) continue;
      const int64_t numel = range.end - range.begin;
      range.exp_avg = piece.exp_avg.narrow(0, begin - run.begin, numel);
      if (piece.exp_avg_sq.defined())  // Muon has none
        range.exp_avg_sq = piece.exp_avg_sq.narrow(0, begin - run.begin, numel);
      range.step = piece.step;
    }
  }
}

}  // namespace fsdp
