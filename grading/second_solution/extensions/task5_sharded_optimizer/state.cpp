#include <sharded_optimizer.h>

#include <algorithm>
#include <map>

namespace fsdp {

std::vector<StateRange> ShardedOptimizer::state() {
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
      const int64_t offset = unit->layout().offsets[i];  // in the unit, as is what follows
      const int64_t numel = unit->parameters()[i].tensor.numel();
      const int64_t begin = std::clamp(shard, offset, offset + numel);
      const int64_t end = std::clamp(shard + unit->shard_numel(), offset, offset + numel);
      if (begin == end) continue;
      StateRange range;
      range.parameter = unit->parameters()[i].name;
      range.begin = begin - offset;
      range.end = end - offset;
      range.value = unit->shard().slice(0, begin - shard, end - shard);
      if (const Piece* piece = trained[{unit.get(), i}]; piece && piece->step.defined()) {
        range.exp_avg = piece->exp_avg.slice(0, 0, end - begin);
        range.exp_avg_sq = piece->exp_avg_sq.slice(0, 0, end - begin);
        range.step = piece->step;
      }
      ranges.push_back(range);
    }
  }
  return ranges;
}

}  // namespace fsdp
