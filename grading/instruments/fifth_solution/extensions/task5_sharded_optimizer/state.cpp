#include <c10/util/irange.h>
#include <sharded_optimizer.h>

#include <algorithm>

namespace fsdp {

std::vector<StateRange> ShardedOptimizer::state() {
  stop_gathering();
  for (const auto group : c10::irange(groups_.size()))
    allocate_state(groups_[group].options, pieces_[group]);

  std::vector<StateRange> ranges;
  for (const auto u : c10::irange(units_.size())) {
    const FlatParameter& unit = *units_[u];
    for (const auto i : c10::irange(unit.parameters().size())) {
      const auto& [name, parameter] = unit.parameters()[i];
      const int64_t first = unit.shard_offset() - unit.layout().offsets[i];  // of the shard, in it
      const int64_t begin = std::max<int64_t>(first, 0);
      const int64_t end = std::min(first + unit.shard_numel(), parameter.numel());
      if (begin >= end) continue;

      const at::Tensor value = unit.shard().slice(0, begin - first, end - first);
      StateRange range{name, begin, end, value, {}, {}, {}};
      if (const Piece* piece = piece_at(u, begin - first); piece && piece->step.defined()) {
        const int64_t from = value.storage_offset() - piece->parameter.storage_offset();
        range.exp_avg = piece->exp_avg.narrow(0, from, end - begin);
        range.exp_avg_sq = piece->exp_avg_sq.narrow(0, from, end - begin);
        range.step = piece->step;
      }
      ranges.push_back(std::move(range));
    }
  }
  return ranges;
}

}  // namespace fsdp
