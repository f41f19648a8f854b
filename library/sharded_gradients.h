#pragma once

#include <fully_shard.h>
#include <gradient_state.h>
#include <parameter_traps.h>
#include <sharded_leaves.h>

#include <memory>
#include <vector>

namespace fsdp {

// Moves the gradients of a sharded model's parameters from the units, which reduce them, to .grad
// of the leaves.
//
// To the user, the module's parameter and its leaf are one parameter, which has one gradient:
// - Between backward passes, .grad of the leaf has the gradient, and .grad of the module's
//   parameter is a trap: reading its values throws.
// - While a gradient is incomplete (during a pass, after a pass in no_sync(), after a pass that
//   threw), .grad of the leaf is a trap too.
// - Dropping either .grad drops the gradient.
// gradient_state.h has the table of states and events of the gradient of one parameter.
class ShardedGradients : public std::enable_shared_from_this<ShardedGradients> {
 public:
  static std::shared_ptr<ShardedGradients> create(const FullySharded& sharded,
                                                  std::shared_ptr<ShardedLeaves> leaves);
  ShardedGradients(const ShardedGradients&) = delete;

  // If `sync` is true, later backward passes reduce the gradients over ranks; if it is false, they
  // do not.
  void set_sync(bool sync);

  // Moves the gradients from the units to .grad of the leaves, the tensors of model.parameters(),
  // now and after each later pass.
  void move_gradients_to_leaves();

  // Call on_backward_begin() in each hook that shows that a backward pass runs. The first call in a
  // pass begins the pass. It throws std::logic_error, which names the parameter, if
  // autograd::grad() asks for the gradient of a sharded parameter, if the user has put a gradient
  // into .grad of a module's parameter, or if the user has given a leaf other data since the
  // forward. A pass of autograd::grad() reduces nothing.
  void on_backward_begin();
  bool pass_is_under_way() const { return under_way_; }
  // Call end_pass() when the gradients of the units have been reduced.
  void end_pass();

  // A trap is a tensor in .grad whose values cannot be read. Between disarm_traps() and
  // arm_traps(), a trap that is taken out of .grad of a module's parameter does not count as
  // dropped by the user, because the units take traps out themselves: they drop the .grad that a
  // pass that threw has left.
  void disarm_traps() { traps_->stop_watching(); }
  void arm_traps() { traps_->set(); }

  void zero_grad();

  // Throws std::logic_error if .grad of any leaf is the trap that says that the gradients have not
  // been reduced. Without this check, a rank that owns no element of the parameter would read no
  // values of its trap, and so would not throw as the other ranks do.
  void check_complete() const;

 private:
  ShardedGradients(const FullySharded& sharded, std::shared_ptr<ShardedLeaves> leaves);
  void register_hooks();
  void gradient_of_parameter(size_t parameter, const at::Tensor& gradient);
  at::Tensor gradient_of_leaf(size_t parameter, const at::Tensor& gradient);
  static void check_not_added(const ShardedParameter& entry);
  bool adds_up() const;
  void see_users_changes(size_t parameter);
  void begin_pass();
  void leave_pass();
  void break_off();
  void trap_is_gone(size_t parameter, bool replaced);
  void drop_in_unit(size_t parameter);
  void end_pass(size_t parameter, const at::Tensor& of_unit);
  void add(size_t parameter, const at::Tensor& of_unit);

  const FlatParameter& unit_of(size_t parameter) const;

  std::shared_ptr<BackwardHooks> backward_hooks_;
  std::vector<std::shared_ptr<FlatParameter>> units_;
  std::shared_ptr<ShardedLeaves> leaves_;
  std::shared_ptr<ParameterTraps> traps_;
  // The state of the gradient of each sharded parameter, in the order of leaves_->entries().
  std::vector<ParameterGradient> gradients_;
  bool under_way_{};  // whether a backward pass has begun and not ended
  bool idle_{};       // whether the current backward pass adds no gradient to .grad
  // Whether, at the end of the last backward pass, any unit had gradients that were not reduced.
  bool any_unit_waits_{};
  bool moves_gradients_{};
  bool sync_{true};
};

}  // namespace fsdp
