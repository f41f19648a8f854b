#include <hooked_module.h>
#include <memory/storage.h>
#include <memory/storage_guard.h>
#include <nn/reads_in_calls.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Returns false if the unit is unsharded but no longer has the values of this rank's shard.
// Compares values, because a write through data() does not change the version counter. On a GPU,
// returns true without a comparison, which would wait for the device.
bool is_current(const FlatParameter& unit) {
  if (unit.state() != UnitState::unsharded || !unit.shard().is_cpu()) return true;
  const at::Tensor gathered = own_part(unit), shard = unit.shard().to(gathered.scalar_type());
  return std::memcmp(gathered.const_data_ptr(), shard.const_data_ptr(), shard.nbytes()) == 0;
}

// Returns the texts of the error that reading a parameter of a sharded unit throws, one for each
// HookedModule::Situation. They are made once, because each call of a module selects one.
std::array<std::string, 3> messages_of(const std::string& are_sharded, const Module& of_unit) {
  const std::string& module = of_unit.name();
  const bool promises = dynamic_cast<const ReadsInCalls*>(&of_unit) != nullptr;
  const std::string others = "; other causes are in docs/what_works.md";
  return {are_sharded +
              "now: call the module (module(x), not module.forward(x)), or use "
              "summon_full_params(); optimizers take model.parameters()" +
              others,
          are_sharded + "inside a call of " + module +
              ": another call of it, inside this one, has ended and resharded the unit; call it "
              "once and repeat what is inside, or set .reshard_after_forward to false" +
              others,
          are_sharded + "in backward, which reads them: " +
              (promises ? module + " is a ReadsInCalls, but reads one of them outside the calls of "
                                   "the module that has it; do not derive it from ReadsInCalls"
                        : "reads_parameters_in_backward() of " + module +
                              " returns false; let it return true") +
              others};
}

}  // namespace

// If the parameters of the unit have no elements, guard() does not make reading their storage an
// error: the storage has no bytes, so resharding cannot free any.
void HookedModule::guard(std::shared_ptr<FlatParameter> unit) {
  Guarded& guarded = units_.emplace_back(Guarded{std::move(unit)});
  const auto& parameters = guarded.unit->parameters();
  guarded.storage = parameters.front().tensor.storage();
  const int64_t bytes = guarded.unit->layout().padded_numel * guarded.unit->shard().element_size();
  if (bytes == 0) return;
  const size_t others = parameters.size() - 1;
  const std::string are_sharded = "parameter " + parameters.front().name +
                                  (others > 0 ? " and " + std::to_string(others) + " more" : "") +
                                  " of unit " + guarded.unit->unit() +
                                  (others > 0 ? " are" : " is") + " sharded ";
  guarded.messages = messages_of(are_sharded, module_);
  guard_storage(guarded.storage, guarded.messages[0], bytes);
}

void HookedModule::reshard() const {
  for (const Guarded& guarded : units_)
    guarded.unit->reshard();
}

void HookedModule::say_what_to_do(Situation situation) const {
  for (const Guarded& guarded : units_) {
    const std::string& message = guarded.messages[static_cast<size_t>(situation)];
    if (!message.empty()) set_guard_message(guarded.storage, message);
  }
}

void HookedModule::check_views() const {
  for (const Guarded& guarded : units_) {
    for (const auto& [name, parameter] : guarded.unit->parameters()) {
      const auto* storage = parameter.storage().unsafeGetStorageImpl();
      if (storage == guarded.storage.unsafeGetStorageImpl()) continue;
      throw std::logic_error("parameter " + name + " of unit " + guarded.unit->unit() +
                             " was replaced after it was sharded, by load(), to() or set_data(); "
                             "use load_state_dict(), or copy_() in summon_full_params()");
    }
  }
}

void HookedModule::check_unwritten() {
  for (Guarded& guarded : units_)
    check_unwritten(guarded);
}

void HookedModule::check_unwritten(Guarded& guarded) {
  const auto& parameters = guarded.unit->parameters();
  std::vector<uint32_t> versions;
  for (const auto& [name, parameter] : parameters)
    versions.push_back(parameter._version());
  const auto before = std::exchange(guarded.versions, versions);
  if (before.empty() || before == versions) return;
  const auto first = std::ranges::mismatch(before, versions).in1 - before.begin();
  throw std::logic_error("parameter " + parameters[static_cast<size_t>(first)].name + " of unit " +
                         guarded.unit->unit() +
                         " was written to while it was gathered, which is lost; write to it in "
                         "summon_full_params(), or to model.parameters()");
}

void HookedModule::allow_writes() {
  for (Guarded& guarded : units_)
    guarded.versions.clear();
}

void HookedModule::end_forward() {
  for (Guarded& guarded : units_)
    guarded.in_forward = guarded.unit->shard()._version();
}

void HookedModule::check_unchanged() const {
  for (const Guarded& guarded : units_) {
    const uint32_t version = guarded.unit->shard()._version();
    if (guarded.in_forward.value_or(version) == version && is_current(*guarded.unit)) continue;
    throw std::logic_error("backward: unit " + guarded.unit->unit() +
                           " was changed since its forward, by an optimizer's step or by "
                           "hand; run backward before the change, or run forward again");
  }
}

at::Tensor own_part(const FlatParameter& unit) {
  const at::Tensor& whole = unit.parameters().front().tensor;
  return view_of_storage(whole.storage(), unit.shard_offset(), {unit.shard_numel()},
                         whole.scalar_type());
}

}  // namespace fsdp
