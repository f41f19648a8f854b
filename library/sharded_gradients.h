#pragma once

#include <fully_shard.h>
#include <gradient_state.h>
#include <parameter_traps.h>
#include <sharded_leaves.h>

#include <memory>
#include <vector>

namespace fsdp {

// The gradients of a sharded model's parameters, from the units, which reduce them, to .grad of the
// leaves.
//
// To the user, the module's parameter and its leaf are one parameter, which has one gradient:
// - Between backward passes .grad of the leaf has it, and .grad of the module's parameter is a
//   trap, which throws when its values are asked for.
// - While a gradient is incomplete (during a pass, after a pass in no_sync(), after a pass that
//   threw), .grad of the leaf is a trap too.
// - To drop one of the two is to drop the gradient.
// gradient_state.h has the table of what may become of the gradient of one parameter.
class ShardedGradients : public std::enable_shared_from_this<ShardedGradients> {
 public:
  static std::shared_ptr<ShardedGradients> create(const FullySharded& sharded,
                                                  std::shared_ptr<ShardedLeaves> leaves);
  ShardedGradients(const ShardedGradients&) = delete;

  void set_sync(bool sync);  // false: passes reduce nothing

  // From now on gradients lie in .grad of the leaves; until then in the units.
  void move_gradients_to_leaves();

  // Call it at each sign of a backward pass. At the first one, throws std::logic_error, which names
  // the parameter, if autograd::grad() asks for the gradient of a sharded one, if the user has put
  // a gradient into .grad of a module's parameter, or given a leaf other data since the forward. A
  // pass of autograd::grad() reduces nothing.
  void on_backward_begin();
  bool pass_is_under_way() const { return under_way_; }
  void end_pass();  // when the units are reduced

  // After a pass that threw, the units drop what it has left in .grad of the module's parameters at
  // the next sign of a forward or a pass. Between these two calls that is no drop of the user's.
  void disarm_traps() { traps_->stop_watching(); }
  void arm_traps() { traps_->set(); }

  void zero_grad();

  // Throws std::logic_error if a gradient is incomplete. A rank that owns no element of its
  // parameter reads no trap, and has to be refused like the others.
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
  std::vector<ParameterGradient> gradients_;  // by parameter, as leaves_->entries()
  bool under_way_{};                          // a pass
  bool idle_{};                               // that pass adds nothing to .grad
  bool any_unit_waits_{};                     // at the end of the last pass: for a reduction
  bool moves_gradients_{};
  bool sync_{true};
};

}  // namespace fsdp
