#include <sharded_leaves.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

// Returns the sizes of a leaf: those of the parameter if there is only one rank; else [1, ..., 1,
// n] with as many dimensions as the parameter, because programs choose an optimizer's groups by
// dim().
std::vector<int64_t> sizes_of_part(const at::Tensor& whole, int64_t numel, int world_size) {
  if (world_size == 1) return whole.sizes().vec();
  std::vector<int64_t> sizes(std::max<size_t>(whole.dim(), 1), 1);
  sizes.back() = numel;
  return sizes;
}

}  // namespace

ShardedLeaves::ShardedLeaves(const FullySharded& sharded, const std::shared_ptr<Communicator>& comm)
    : units_(sharded.units()) {
  const at::NoGradGuard no_grad;
  // For each unit, the index in the unit of the parameter for which the loop makes the next leaf.
  std::vector<size_t> next(units_.size());
  for (const auto& parameter : sharded.layout().parameters) {
    const FlatParameter& unit = *units_[parameter.unit];
    const at::Tensor whole = unit.parameters()[next[parameter.unit]++].tensor;
    const int64_t shard_end = unit.shard_offset() + unit.shard_numel();
    // `begin` and `end` are positions in the flat parameter. They are equal if the shard has no
    // element of this parameter.
    const int64_t begin =
        std::clamp(unit.shard_offset(), parameter.offset, parameter.offset + parameter.numel);
    const int64_t end = std::clamp(shard_end, begin, parameter.offset + parameter.numel);
    const int64_t offset = begin < end ? begin - unit.shard_offset() : 0;
    const auto sizes = sizes_of_part(whole, end - begin, comm->world_size());
    at::Tensor leaf = unit.shard().narrow(0, offset, end - begin).view(sizes).detach();
    leaf.set_requires_grad(whole.requires_grad());
    entries_.push_back({parameter.name, whole, parameter.unit, parameter.offset,
                        begin - parameter.offset, offset, leaf, sizes, whole.requires_grad()});
    ShardedParameter& entry = entries_.back();
    entry.no_gradient_by_name = std::make_shared<NoGradientByName>(leaf, parameter.name);
    // If there is only one rank, it has whole parameters, so nothing is marked as a part.
    if (comm->world_size() == 1) continue;
    const auto placement = placement_of(whole.sizes(), parameter.offset, unit.shard_numel(), comm);
    entry.part = part_of(parameter.name, /*is_gradient=*/false, placement);
    entry.part_of_gradient = part_of(parameter.name, /*is_gradient=*/true, placement);
    mark_part(entry.leaf, entry.part);
  }
}

bool ShardedLeaves::has_replaced_data(const ShardedParameter& entry) const {
  const at::Tensor& shard = units_[entry.unit]->shard();
  const at::Tensor& leaf = entry.leaf;
  const bool in_place = leaf.has_storage() && leaf.is_alias_of(shard) && leaf.is_contiguous() &&
                        leaf.storage_offset() == shard.storage_offset() + entry.offset &&
                        leaf.sizes() == at::IntArrayRef(entry.sizes);
  return !in_place;
}

bool ShardedLeaves::has_replaced_data() const {
  return std::ranges::any_of(entries_, [&](const auto& entry) { return has_replaced_data(entry); });
}

// If the user has given a leaf, a tensor of model.parameters(), other data with set_data(), copies
// the values into the shard and makes the leaf a view of the shard again.
void ShardedLeaves::copy_data_to_shards() {
  const at::NoGradGuard no_grad;
  const PartsAsTensors inside;
  for (const ShardedParameter& entry : entries_) {
    if (!has_replaced_data(entry)) continue;
    const at::Tensor& shard = units_[entry.unit]->shard();
    at::Tensor leaf = entry.leaf;
    if (leaf.sizes() != at::IntArrayRef(entry.sizes) || leaf.scalar_type() != shard.scalar_type() ||
        leaf.device() != shard.device()) {
      throw std::logic_error("model.parameters(): set_data() gave parameter " + entry.name +
                             " a tensor of another shape, dtype or device; write to it in place");
    }
    const at::Tensor place =
        at::Tensor(shard).narrow(0, entry.offset, leaf.numel()).view(leaf.sizes());
    place.copy_(leaf);
    leaf.set_data(place.detach());
    mark_part(leaf, entry.part);
  }
}

void ShardedLeaves::sync_requires_grad() {
  for (ShardedParameter& entry : entries_) {
    const bool changed = entry.whole.requires_grad() != entry.requires_grad ||
                         entry.leaf.requires_grad() != entry.requires_grad;
    if (!changed) continue;
    entry.requires_grad = !entry.requires_grad;
    entry.whole.set_requires_grad(entry.requires_grad);
    entry.leaf.set_requires_grad(entry.requires_grad);
  }
}

std::vector<bool> ShardedLeaves::requires_grad() const {
  std::vector<bool> of_entries;
  for (const ShardedParameter& entry : entries_)
    of_entries.push_back(entry.requires_grad);
  return of_entries;
}

}  // namespace fsdp
