#pragma once

#include <fully_shard.h>
#include <unrecorded_calls.h>

#include <c10/core/Storage.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// A module of a sharded model that has hooks of ShardedModelImpl: the root, or that of a unit.
// Knows what reading and writing the unit's parameters does now, and says it in errors.
class HookedModule {
 public:
  // When a parameter of a unit that is sharded is read.
  enum class Situation { not_called, called, in_backward };

  explicit HookedModule(Module& module) : module_(module) {}

  // Takes the unit of this module, whose parameters from now on say why they cannot be read while
  // they are sharded. It is not called for a root without parameters of its own.
  void guard(std::shared_ptr<FlatParameter> unit);

  Module& module() const { return module_; }
  const std::shared_ptr<FlatParameter>& unit() const { return unit_; }  // null: has none

  // Changes what the error says. Does nothing if the unit has no elements.
  void say_what_to_do(Situation situation) const;

  // Throws std::logic_error naming the first parameter that no longer is a view of the flat tensor.
  void check_views() const;

  // Throws std::logic_error naming the first parameter that was written to since the last call of
  // this function: what is written to a gathered parameter is lost when its unit is resharded.
  void check_unwritten();
  // Forgets the parameters' versions, because a write was right.
  void allow_writes() { versions_.clear(); }

  // Notes the shard's version at the end of a forward. check_unchanged() throws std::logic_error
  // if the shard was changed since, or if what is gathered are older values.
  void end_forward();
  void check_unchanged() const;

  UnrecordedCalls unrecorded{};
  int64_t calls{};  // under way

 private:
  Module& module_;
  std::shared_ptr<FlatParameter> unit_{};
  c10::Storage storage_{};                // of the unit's flat tensor
  std::optional<uint32_t> in_forward_{};  // the shard's version at the end of its last forward
  // Version counters of the unit's parameters, to detect a write while they are gathered; empty:
  // read them at the next forward.
  std::vector<uint32_t> versions_{};
  std::array<std::string, 3> messages_{};  // by Situation; empty if the unit has no elements
};

// [padded_numel / W] The part of an unsharded unit's flat tensor that came from this rank's shard,
// as the other ranks see it (in param_dtype).
at::Tensor own_part(const FlatParameter& unit);

}  // namespace fsdp
