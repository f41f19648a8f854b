#pragma once

#include <flat_parameter.h>
#include <sharded_leaves.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// A storage for tensors that nobody may read, with room for all parameters of the unit. Reading
// throws "the gradients of unit UNIT" and `message`.
c10::Storage trap_storage(const FlatParameter& unit, const std::string& message);

// The traps in .grad of the parameters of a sharded module: tensors that throw when their values
// are asked for, because the gradients are in .grad of the leaves.
//
// A trap is watched or not. If a watched trap goes away, the user has dropped the gradient, or has
// put another one in its place.
class ParameterTraps : public std::enable_shared_from_this<ParameterTraps> {
 public:
  // `gone` is called with the index of the parameter when a watched trap has gone away; `replaced`:
  // another tensor is in its place.
  using Gone = std::function<void(size_t parameter, bool replaced)>;
  ParameterTraps(const ShardedLeaves& leaves,
                 const std::vector<std::shared_ptr<FlatParameter>>& units, Gone gone);
  ParameterTraps(const ParameterTraps&) = delete;

  // Puts a watched trap into .grad of each parameter whose trap is not watched, unless the
  // gradient of a pass, or the user's, is there.
  void set();

  // From now on traps may go away, and `gone` is not called.
  void stop_watching();
  // As above for one parameter, and removes its trap: a gradient is about to be added to .grad.
  void make_room(size_t parameter);

  // Calls `gone` if the user keeps the trap, so that it lives, and has dropped or replaced .grad.
  void check_in_place(size_t parameter);

  bool is_trap(size_t parameter) const;  // what lies in .grad

 private:
  const at::Tensor& gradient(size_t parameter) const;
  void trap_died(size_t parameter, int64_t number);

  struct Trap {
    at::Tensor parameter;  // the module's
    c10::Storage storage;  // of its unit's traps
    int64_t number{};      // of the trap in .grad; 0: it is not watched
  };
  std::vector<Trap> traps_;  // by parameter
  int64_t last_number_{};
  Gone gone_;
};

}  // namespace fsdp
