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

// A module of a sharded model that has hooks of ShardedModelImpl: the root, or a module that has a
// unit. (A module has several units if its parameters have several dtypes, or are partly frozen;
// see separate_dtypes() and separate_frozen().) HookedModule turns misuse into errors: reading a
// parameter while its unit is sharded, and a write to a parameter that would be lost.
class HookedModule {
 public:
  // The situation in which the program reads a parameter of a unit while the unit is sharded.
  enum class Situation { not_called, called, in_backward };

  explicit HookedModule(Module& module) : module_(module) {}

  // Adds a unit of this module. From now on, reading one of the unit's parameters while the unit is
  // sharded throws an error that says why. guard() is not called for a root without parameters of
  // its own, which has no unit.
  void guard(std::shared_ptr<FlatParameter> unit);

  Module& module() const { return module_; }
  bool has_unit() const { return !units_.empty(); }
  const std::string& name_of_unit() const { return units_.back().unit->unit(); }
  void reshard() const;

  // Selects the text of the error that is thrown if a parameter of this module's units is read
  // while it is sharded: the text for `situation`. Does nothing for a unit without elements.
  void say_what_to_do(Situation situation) const;

  // Throws std::logic_error if a parameter of a unit is no longer a view of the unit's flat tensor.
  // The error names the first such parameter.
  void check_views() const;

  // Throws std::logic_error if a parameter of a unit was written to since the last call of this
  // function, because a write to a gathered parameter is lost when its unit is resharded. The error
  // names the first such parameter.
  void check_unwritten();
  // Forgets the version counters of the parameters, so that the next check_unwritten() accepts the
  // writes to parameters that were made before.
  void allow_writes();

  // end_forward() stores the version counters of the shards at the end of a forward of this module.
  // check_unchanged() throws std::logic_error if a shard was changed after that, or if a unit is
  // unsharded and has other values than the shard.
  void end_forward();
  void check_unchanged() const;

  UnrecordedCalls unrecorded{};
  int64_t calls{};  // number of calls of the module that have begun and not ended

 private:
  struct Guarded {
    std::shared_ptr<FlatParameter> unit;
    // The storage of the flat tensor of `unit`. Every parameter of `unit` must stay a view of it.
    c10::Storage storage{};
    // The value that the version counter of this rank's shard of `unit` had at the end of the last
    // forward of the module.
    std::optional<uint32_t> in_forward{};
    // Version counters of the unit's parameters, to detect a write while they are gathered. Empty:
    // the next check_unwritten() reads them.
    std::vector<uint32_t> versions{};
    // For each Situation, the text of the error that is thrown if a parameter is read while the
    // unit is sharded. Empty texts if the unit has no elements.
    std::array<std::string, 3> messages{};
  };
  static void check_unwritten(Guarded& guarded);

  Module& module_;
  std::vector<Guarded> units_{};  // the units of module_, in the order of plan_units()
};

// Returns the part of an unsharded unit's flat tensor that came from this rank's shard:
// [padded_numel / W], in param_dtype. So it has the values that the other ranks have gathered.
at::Tensor own_part(const FlatParameter& unit);

}  // namespace fsdp
