#pragma once

#include <flat_parameter.h>
#include <sharded_leaves.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Returns a storage for traps, which are tensors whose values cannot be read. The storage has no
// memory, but reports the size of all parameters of the unit. Reading it throws an error that says
// "the gradients of unit UNIT" and then `message`.
c10::Storage trap_storage(const FlatParameter& unit, const std::string& message);

// The traps in .grad of the parameters of a sharded module: tensors that throw when their values
// are read, because the gradients are in .grad of the leaves.
//
// This class watches a trap or does not. If a watched trap is taken out of .grad, the user has
// dropped the gradient or has put another one in its place.
class ParameterTraps : public std::enable_shared_from_this<ParameterTraps> {
 public:
  // `gone` is called with the index of the parameter when a watched trap has been taken out of
  // .grad. `replaced`: whether another tensor is now in .grad.
  using Gone = std::function<void(size_t parameter, bool replaced)>;
  ParameterTraps(const ShardedLeaves& leaves,
                 const std::vector<std::shared_ptr<FlatParameter>>& units, Gone gone);
  ParameterTraps(const ParameterTraps&) = delete;

  // Puts a watched trap into .grad of each parameter whose trap is not watched, unless .grad has a
  // gradient, of a pass or of the user.
  void set();

  // After stop_watching(), no trap is watched: traps can be taken out of .grad, and `gone` is not
  // called. The next set() puts watched traps into .grad again.
  void stop_watching();
  // Stops watching the trap of one parameter, and takes it out of .grad, because autograd is about
  // to add a gradient to .grad of this parameter.
  void make_room(size_t parameter);

  // Calls `gone` if the user has dropped or replaced .grad, but still holds the watched trap, so
  // that the trap was not destroyed.
  void check_in_place(size_t parameter);

  // Returns whether .grad of the parameter with this index is a trap.
  bool is_trap(size_t parameter) const;

 private:
  const at::Tensor& gradient(size_t parameter) const;
  void trap_died(size_t parameter, int64_t number);

  struct Trap {
    at::Tensor parameter;  // the module's parameter, in whose .grad the trap is
    c10::Storage storage;  // the storage of all traps of the parameter's unit
    at::ScalarType dtype;  // dtype of the trap: that of the unit's shard
    // Number of the trap that is in .grad of the parameter and is watched; 0: no trap is watched.
    int64_t number{};
  };
  // For each parameter, the trap that set() puts into the parameter's .grad; in the order of
  // ShardedLeaves::entries().
  std::vector<Trap> traps_;
  int64_t last_number_{};
  Gone gone_;
};

}  // namespace fsdp
