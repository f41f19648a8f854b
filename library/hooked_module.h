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

// A module of a sharded model that has hooks of ShardedModelImpl: the root, or the module of a
// unit. Turns reading the unit's parameters while they are sharded, and writes that would be lost,
// into errors.
class HookedModule {
 public:
  // The situation in which the program reads a parameter of the unit while the unit is sharded.
  enum class Situation { not_called, called, in_backward };

  explicit HookedModule(Module& module) : module_(module) {}

  // Sets the unit of this module. From now on, reading one of the unit's parameters while the unit
  // is sharded throws an error that says why. The caller does not call guard() for a root without
  // parameters of its own.
  void guard(std::shared_ptr<FlatParameter> unit);

  Module& module() const { return module_; }
  const std::shared_ptr<FlatParameter>& unit() const { return unit_; }  // null: has no unit

  // Selects the text of the error that reading a sharded parameter throws. Does nothing if the unit
  // has no elements.
  void say_what_to_do(Situation situation) const;

  // Throws std::logic_error if a parameter of the unit is no longer a view of the unit's flat
  // tensor. The error names the first such parameter.
  void check_views() const;

  // Throws std::logic_error if a parameter of the unit was written to since the last call of this
  // function, because a write to a gathered parameter is lost when its unit is resharded. The error
  // names the first such parameter.
  void check_unwritten();
  // Makes the next check_unwritten() accept earlier writes: forgets the parameters' versions.
  void allow_writes() { versions_.clear(); }

  // end_forward() notes the shard's version at the end of a forward. check_unchanged() throws
  // std::logic_error if the shard was changed after that, or if the unit is unsharded and has other
  // values than the shard.
  void end_forward();
  void check_unchanged() const;

  UnrecordedCalls unrecorded{};
  int64_t calls{};  // of the module, under way

 private:
  Module& module_;
  std::shared_ptr<FlatParameter> unit_{};
  c10::Storage storage_{};                // of the unit's flat tensor
  std::optional<uint32_t> in_forward_{};  // the shard's version at the end of its last forward
  // Version counters of the unit's parameters, to detect a write while they are gathered. Empty:
  // the next check_unwritten() reads them.
  std::vector<uint32_t> versions_{};
  std::array<std::string, 3> messages_{};  // by Situation; empty if the unit has no elements
};

// Returns the part of an unsharded unit's flat tensor that came from this rank's shard:
// [padded_numel / W], in param_dtype, so with the values that the other ranks have.
at::Tensor own_part(const FlatParameter& unit);

}  // namespace fsdp
