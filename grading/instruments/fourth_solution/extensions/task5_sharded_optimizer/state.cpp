#include <sharded_optimizer.h>

#include <algorithm>

namespace fsdp {

void ShardedOptimizer::OwnedGroup::add_state(const Elements& elements, StateRange& range) {
  const auto place =
      std::ranges::find_if(places_, [&](const Elements& whole) { return whole.contain(elements); });
  if (place == places_.end()) return;
  allocate_state(options_, pieces_);
  const Piece& piece = pieces_[static_cast<size_t>(place - places_.begin())];
  if (!piece.exp_avg.defined()) return;
  const auto part = [&](const at::Tensor& state) {
    return state.narrow(0, elements.begin - place->begin, elements.end - elements.begin);
  };
  range.exp_avg = part(piece.exp_avg);
  range.exp_avg_sq = part(piece.exp_avg_sq);
  range.step = piece.step;
}

std::vector<StateRange> ShardedOptimizer::state() {
  take_shards_back();
  std::vector<StateRange> ranges;
  for (const auto& unit : units_) {
    for (size_t i = 0; i < unit->parameters().size(); ++i) {
      const auto& [name, tensor] = unit->parameters()[i];
      const int64_t offset = unit->layout().offsets[i];
      const Elements own = Elements::owned(unit, offset, offset + tensor.numel());
      if (own.begin == own.end) continue;
      StateRange& range = ranges.emplace_back();
      range.parameter = name;
      range.begin = own.begin - offset;
      range.end = own.end - offset;
      range.value = own.of(unit->shard());
      for (OwnedGroup& group : owned_)
        group.add_state(own, range);
    }
  }
  return ranges;
}

}  // namespace fsdp
