#include <memory/storage.h>
#include <memory/storage_guard.h>
#include <shard_tensors.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Storage for tensors on which all of the unit's parameters have room, and which nobody may read.
c10::Storage trap_storage(const FlatParameter& unit, const std::string& message) {
  const c10::Storage storage = storage_of_no_bytes(unit.shard().device().type());
  guard_storage(storage, message, unit.layout().padded_numel * unit.shard().element_size());
  return storage;
}

c10::Storage storage_of_traps(const FlatParameter& unit) {
  return trap_storage(unit, "the gradients of unit " + unit.unit() +
                                " are sharded: give optimizers model.parameters(), not those of "
                                "the module, and clip by model.clip_grad_norm_()");
}

c10::Storage storage_of_waiting(const FlatParameter& unit) {
  return trap_storage(unit, "the gradients of unit " + unit.unit() +
                                " have not been reduced: run the last backward before a step "
                                "outside of no_sync(); model.zero_grad() drops them");
}

}  // namespace

ShardTensors::ShardTensors(const FullySharded& sharded) : units_(sharded.units()) {
  const at::NoGradGuard no_grad;
  std::vector<c10::Storage> traps, waiting;
  for (const auto& unit : units_) {
    traps.push_back(storage_of_traps(*unit));
    waiting.push_back(storage_of_waiting(*unit));
  }
  std::vector<size_t> next(units_.size());  // parameter of each unit
  for (const auto& parameter : sharded.layout().parameters) {
    const FlatParameter& unit = *units_[parameter.unit];
    const at::Tensor whole = unit.parameters()[next[parameter.unit]++].tensor;
    const int64_t shard_end = unit.shard_offset() + unit.shard_numel();
    // In the flat parameter; empty if the shard has no element of it.
    const int64_t begin =
        std::clamp(unit.shard_offset(), parameter.offset, parameter.offset + parameter.numel);
    const int64_t end = std::clamp(shard_end, begin, parameter.offset + parameter.numel);
    const int64_t offset = begin < end ? begin - unit.shard_offset() : 0;
    at::Tensor own = unit.shard().narrow(0, offset, end - begin).detach();
    own.set_requires_grad(whole.requires_grad());
    entries_.push_back(
        {parameter.name, whole, parameter.unit, parameter.offset, begin - parameter.offset, offset,
         own, view_of_storage(traps[parameter.unit], 0, whole.sizes()),
         view_of_storage(waiting[parameter.unit], 0, own.sizes()), whole.requires_grad()});
  }
}

void ShardTensors::register_hooks() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    at::Tensor whole = entries_[i].whole;
    const bool trainable = whole.requires_grad();
    whole.set_requires_grad(true);  // else no hook can be registered; it may be unfrozen later
    whole.register_hook([weak = weak_from_this(), i](const at::Tensor& arriving) {
      if (const auto alive = weak.lock()) alive->arrived(i, arriving);
    });
    whole.set_requires_grad(trainable);
  }
}

void ShardTensors::arrived(size_t index, const at::Tensor& arriving) {
  Entry& entry = entries_[index];
  if (at::GradMode::is_enabled()) {
    throw std::logic_error("backward: parameter " + entry.name +
                           " is sharded, so backward cannot be differentiated: create_graph has to "
                           "be off");
  }
  if (arriving.defined() && arriving.layout() != at::kStrided) {
    throw std::logic_error(
        "backward: the gradient of parameter " + entry.name +
        " is sparse, which can't be sharded; make its layer without .sparse(true)");
  }
  follow_zero_grad(entry);
  at::Tensor& gradient = entry.whole.mutable_grad();
  if (gradient.is_same(entry.trap)) gradient.reset();
  entry.has_gradient = false;  // not before the pass has ended
}

void ShardTensors::follow_zero_grad(Entry& entry) {
  if (!entry.has_gradient || entry.whole.grad().defined()) return;
  entry.own.mutable_grad().reset();
  entry.has_gradient = false;
}

void ShardTensors::follow_zero_grad() {
  for (Entry& entry : entries_)
    follow_zero_grad(entry);
}

void ShardTensors::set_traps() {
  for (Entry& entry : entries_) {
    at::Tensor& gradient = entry.whole.mutable_grad();
    if (entry.whole.requires_grad() && !gradient.defined()) gradient = entry.trap;
    entry.has_gradient = gradient.defined();
  }
}

void ShardTensors::forget_traps() {
  for (Entry& entry : entries_)
    entry.has_gradient = false;
}

void ShardTensors::mark_waiting() {
  for (Entry& entry : entries_) {
    at::Tensor& gradient = entry.own.mutable_grad();
    if (units_[entry.unit]->has_gradient() && entry.requires_grad && !gradient.defined())
      gradient = entry.waiting;
  }
}

void ShardTensors::compare_requires_grad() {
  for (Entry& entry : entries_) {
    const bool changed = entry.whole.requires_grad() != entry.requires_grad ||
                         entry.own.requires_grad() != entry.requires_grad;
    if (!changed) continue;
    frozen_or_unfrozen_ = true;
    entry.requires_grad = !entry.requires_grad;
    entry.whole.set_requires_grad(entry.requires_grad);
    entry.own.set_requires_grad(entry.requires_grad);
  }
}

bool ShardTensors::take_frozen_or_unfrozen() {
  return std::exchange(frozen_or_unfrozen_, false);
}

void ShardTensors::take_gradients() {
  const at::NoGradGuard no_grad;
  follow_zero_grad();
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const at::Tensor gradients = units_[unit]->sharded_gradient();
    if (!gradients.defined()) continue;
    units_[unit]->drop_gradient();
    for (Entry& entry : entries_) {
      if (entry.unit != unit || !entry.whole.requires_grad()) continue;
      // No view to autograd: Optimizer::zero_grad() detaches gradients in place.
      const at::Tensor part =
          view_of_storage(gradients.storage(), gradients.storage_offset() + entry.offset,
                          entry.own.sizes(), gradients.scalar_type());
      at::Tensor& gradient = entry.own.mutable_grad();
      if (gradient.defined() && !gradient.is_same(entry.waiting)) {
        gradient.add_(part);
      } else {
        gradient = part;
      }
    }
  }
}

bool ShardTensors::have_gradients() const {
  return std::ranges::any_of(entries_, [](auto& entry) { return entry.own.grad().defined(); });
}

void ShardTensors::drop_gradients() {
  for (const auto& unit : units_)
    unit->drop_gradient();
}

}  // namespace fsdp
