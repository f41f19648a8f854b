#pragma once

#include <fully_shard.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// What this rank owns of each distinct parameter, as leaves for an optimizer, and their gradients.
class ShardTensors : public std::enable_shared_from_this<ShardTensors> {
 public:
  struct Entry {
    std::string name;
    at::Tensor whole;  // the module's Variable, a view of its unit's flat tensor
    size_t unit;       // index into units()
    int64_t flat;      // [elements] where the parameter begins in the unit's flat tensor
    int64_t begin;     // [elements] of `own` in the parameter
    int64_t offset;    // [elements] of `own` in the unit's shard
    at::Tensor own;    // [n] a leaf, a view of the shard, with the shard's version counter
    // Put into .grad of `whole` and of `own` where there is no gradient: whoever reads them is told
    // where gradients are, and that they wait for a pass outside of no_sync().
    at::Tensor trap, waiting;
    bool requires_grad;   // of both, when they were compared last
    bool has_gradient{};  // `whole` had one, if only the trap, when a pass had ended
  };

  // Entries in the order of first registration.
  explicit ShardTensors(const FullySharded& sharded);
  ShardTensors(const ShardTensors&) = delete;

  const std::vector<Entry>& entries() const { return entries_; }

  // Registers hooks on the parameters that run before a gradient is added up. They refuse a
  // backward that records itself (create_graph) and sparse gradients, and take the trap away.
  void register_hooks();

  // Between backward passes a parameter of the module has no gradient. So an optimizer over
  // net.parameters() would do nothing, and a norm of them be 0. The trap in .grad says so.
  void set_traps();
  void forget_traps();  // a pass that broke off has dropped them
  // After a pass in no_sync() a step of the optimizer would do nothing.
  void mark_waiting();

  // If one of the two was frozen or unfrozen, so is the other.
  void compare_requires_grad();
  // Whether that has happened since the last call of this function.
  bool take_frozen_or_unfrozen();

  // If zero_grad() of the module has dropped the gradient of `whole`, drops that of `own` too.
  void follow_zero_grad();

  // Moves the units' sharded gradients into .grad of `own`, or adds them to what is there.
  void take_gradients();
  bool have_gradients() const;  // one of `own` has
  // Drops those of the units: of a pass that has broken off.
  void drop_gradients();

 private:
  void arrived(size_t index, const at::Tensor& arriving);
  static void follow_zero_grad(Entry& entry);

  std::vector<std::shared_ptr<FlatParameter>> units_;
  std::vector<Entry> entries_;
  bool frozen_or_unfrozen_{};
};

}  // namespace fsdp
