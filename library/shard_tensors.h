#pragma once

#include <fully_shard.h>
#include <leaf_gradients.h>
#include <part_mark.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// What this rank owns of each distinct parameter, as leaves for an optimizer, and their gradients.
//
// To the user a parameter of the module and its leaf are one parameter, which has one gradient.
// Between backward passes .grad of the leaf has it, and .grad of the module's parameter is a trap,
// which throws when its values are asked for. While a gradient is incomplete (in a pass, after one
// in no_sync(), after one that threw) .grad of the leaf is a trap too. Who drops one of the two has
// dropped the gradient.
class ShardTensors : public std::enable_shared_from_this<ShardTensors> {
 public:
  struct Entry {
    std::string name;
    at::Tensor whole;  // the module's Variable, a view of its unit's flat tensor
    size_t unit;       // index into units()
    int64_t flat;      // [elements] where the parameter begins in the unit's flat tensor
    int64_t begin;     // [elements] of `own` in the parameter
    int64_t offset;    // [elements] of `own` in the unit's shard
    // [1, ..., 1, n] a leaf, a view of the shard, with the shard's version counter and as many
    // dimensions as `whole`, but at least one
    at::Tensor own;
    at::Tensor incomplete, misplaced;  // of the shape of `own`: traps that its .grad may be
    bool requires_grad;                // of both, when they were compared last
    int64_t trap{};                    // the number of the trap in .grad of `whole`; 0: it may go
    at::Tensor reduced{};  // of the shape of `own`: the gradient of earlier passes, while .grad of
                           // `own` is a trap
    at::Tensor
        unreduced{};  // of the shape of `whole`: between passes, the sum of those in no_sync()
    bool waits{};     // the unit has collected it, and has not reduced it
    bool broken{};    // a part of the gradient was lost in a pass that threw
    // The marks of `own` and of its gradient; null if one rank has the whole parameter.
    c10::intrusive_ptr<PartOf> part{}, part_of_gradient{};
    std::shared_ptr<NoGradientByName> no_gradient_by_name{};
  };

  // Entries in the order of first registration.
  ShardTensors(const FullySharded& sharded, int world_size);
  ShardTensors(const ShardTensors&) = delete;

  const std::vector<Entry>& entries() const { return entries_; }

  // Registers hooks on the parameters that run before a gradient is added up.
  void register_hooks();

  void set_sync(bool sync);  // false: passes reduce nothing

  // From now on gradients lie in .grad of the leaves; until then in the units.
  void give_gradients();

  // At each sign of a backward pass. At the first one, throws std::logic_error, which names the
  // parameter, if autograd::grad() asks for the gradient of a sharded one, if the user has put a
  // gradient into .grad of a module's parameter, or given a leaf other data since the forward. A
  // pass of autograd::grad() reduces nothing.
  void in_pass();
  bool pass_is_under_way() const { return under_way_; }
  void end_pass();  // when the units are reduced
  // After a pass that threw, the units drop what it has left in .grad of the module's parameters,
  // between these two: at a sign of what comes next.
  void expect_drop();
  void set_traps();
  void zero_grad();
  // Throws std::logic_error if a gradient is incomplete. A rank that owns no element of its
  // parameter reads no trap, and has to be refused like the others.
  void check_complete() const;

  // Whether the user has given a leaf other data by set_data(). take_data() puts it into the shard,
  // and throws std::logic_error if it has another shape, dtype or device.
  bool data_was_given() const;
  void take_data();

  // If one of the two was frozen or unfrozen, so is the other.
  void compare_requires_grad();
  // Of each entry, when they were compared last.
  std::vector<bool> requires_grad() const;

 private:
  void arrived(Entry& entry, const at::Tensor& gradient);
  at::Tensor marked(const Entry& entry, const at::Tensor& gradient) const;
  bool adds_up() const;
  static void check_not_added(const Entry& entry);
  void look_at(Entry& entry);
  void begin_pass(Entry& entry);
  void leave_pass();
  void break_off();
  void trap_is_gone(Entry& entry, bool replaced);
  void forget(Entry& entry);
  void end_pass(Entry& entry, const at::Tensor& of_unit);
  void give(Entry& entry, const at::Tensor& of_unit);
  bool is_trap(const Entry& entry) const;
  bool is_in_place(const Entry& entry) const;

  std::shared_ptr<BackwardHooks> backward_hooks_;
  std::vector<std::shared_ptr<FlatParameter>> units_;
  std::vector<c10::Storage> traps_;  // of .grad of each unit's parameters
  std::vector<Entry> entries_;
  bool under_way_{}, idle_{};  // a pass; one that adds nothing to .grad
  bool incomplete_{};          // the gradients after the last one
  int64_t last_trap_{};
  bool gives_gradients_{}, sync_{true};
};

}  // namespace fsdp
