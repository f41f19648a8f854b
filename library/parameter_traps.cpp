#include <memory/storage.h>
#include <memory/storage_guard.h>
#include <parameter_traps.h>

#include <utility>

namespace fsdp {
namespace {

// Runs a function when the last tensor that holds this object is destroyed.
struct AtDrop : c10::BackendMeta {
  explicit AtDrop(std::function<void()> function) : run(std::move(function)) {}
  ~AtDrop() override { run(); }
  std::function<void()> run;
};

}  // namespace

c10::Storage trap_storage(const FlatParameter& unit, const std::string& message) {
  const c10::Storage storage = storage_of_no_bytes(unit.shard().device().type());
  guard_storage(storage, "the gradients of unit " + unit.unit() + message,
                unit.layout().padded_numel * unit.shard().element_size());
  return storage;
}

ParameterTraps::ParameterTraps(const ShardedLeaves& leaves,
                               const std::vector<std::shared_ptr<FlatParameter>>& units, Gone gone)
    : gone_(std::move(gone)) {
  std::vector<c10::Storage> storages;
  for (const auto& unit : units)
    storages.push_back(trap_storage(*unit,
                                    " are sharded: give optimizers model.parameters(), not those "
                                    "of the module, and clip by model.clip_grad_norm_()"));
  for (const auto& entry : leaves.entries())
    traps_.push_back({entry.whole, storages[entry.unit], entry.leaf.scalar_type()});
}

const at::Tensor& ParameterTraps::gradient(size_t parameter) const {
  return traps_[parameter].parameter.grad();
}

bool ParameterTraps::is_trap(size_t parameter) const {
  const at::Tensor& now = gradient(parameter);
  return now.defined() && now.has_storage() &&
         now.storage().unsafeGetStorageImpl() == traps_[parameter].storage.unsafeGetStorageImpl();
}

void ParameterTraps::set() {
  for (size_t i = 0; i < traps_.size(); ++i) {
    Trap& trap = traps_[i];
    if (trap.number != 0) continue;
    if (gradient(i).defined() && !is_trap(i)) continue;
    const int64_t number = ++last_number_;
    const at::Tensor tensor = view_of_storage(trap.storage, 0, trap.parameter.sizes(), trap.dtype);
    tensor.unsafeGetTensorImpl()->set_backend_meta(
        c10::make_intrusive<AtDrop>([weak = weak_from_this(), i, number] {
          if (const auto alive = weak.lock()) alive->trap_died(i, number);
        }));
    trap.parameter.mutable_grad() = tensor;
    trap.number = number;
  }
}

void ParameterTraps::stop_watching() {
  for (Trap& trap : traps_)
    trap.number = 0;
}

void ParameterTraps::make_room(size_t parameter) {
  traps_[parameter].number = 0;
  if (is_trap(parameter)) traps_[parameter].parameter.mutable_grad().reset();
}

void ParameterTraps::check_in_place(size_t parameter) {
  int64_t& number = traps_[parameter].number;
  if (number == 0 || is_trap(parameter)) return;
  number = 0;
  gone_(parameter, gradient(parameter).defined());
}

void ParameterTraps::trap_died(size_t parameter, int64_t number) {
  if (traps_[parameter].number != number) return;
  traps_[parameter].number = 0;
  // While .grad.reset() destroys the trap, .grad still points to the trap, whose use count is 0. So
  // a use count above 0 means that the user has put another tensor into .grad.
  const at::Tensor& now = gradient(parameter);
  gone_(parameter, now.defined() && now.use_count() > 0);
}

}  // namespace fsdp
