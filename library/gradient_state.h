#pragma once

#include <base/torch.h>

namespace fsdp {

// The gradient of one parameter of a sharded model: which tensor lies in .grad of its leaf, and
// what is kept beside it. It knows no rank and no unit: ShardedGradients tells it what happens, and
// puts a trap into .grad of the module's parameter between backward passes (parameter_traps.h).
//
// A trap is a tensor whose values nobody can read: whoever asks for them gets an error that says
// what to do.
//
//   state       .grad of the leaf                    kept here
//   in_unit     none of this class's: the user has   nothing; the unit has the sharded gradient
//               not asked for the leaf
//   complete    the gradient, or none                nothing
//   incomplete  the trap "have not been reduced"     what .grad of the leaf was before it: the sum
//                                                    of earlier passes that were reduced, or none
//   broken      the trap "have not been reduced"     nothing: a part was lost in a pass that threw
//   misplaced   the trap "were put into the          nothing; the user's tensor lies in .grad of
//               module's parameters"                 the module's parameter
//
// From the beginning of a pass to its end, a gradient that the pass may change is incomplete (or
// broken): only so do all of them change at once. After a pass in no_sync() it stays so.
//
//   event                  in_unit    complete     incomplete   broken     misplaced
//   give()                 complete   error        error        error      error
//   see_users_changes()    -          [1]          [2]          [2]        complete
//   begin_pass()           -          [3]          -            -          error
//   gradient_of_leaf()     -          -            complete     [4]        -
//   show_for_pass()        -          -            complete     -          -
//   hide()                 error      incomplete   error        error      error
//   break_off()            -          [1]          [5]          [5]        -
//   drop()                 -          -            complete     [6]        complete
//   misplace()             -          misplaced    misplaced    misplaced  misplaced
//
//   -      the state stays
//   error  std::logic_error that says "internal error"
//   [1]    stays complete; if .grad of the leaf is the trap again, because the user has kept it and
//          put it back: incomplete (broken in break_off())
//   [2]    stays if .grad of the leaf is still the trap; complete if the user has dropped it or put
//          a gradient in its place
//   [3]    incomplete; stays complete if the parameter is frozen and has no gradient
//   [4]    stays broken; .grad of the leaf becomes none, where autograd puts the gradient of this
//   pass [5]    broken; complete if .grad of the leaf is the trap no more, as in [2] [6]    stays
//   broken; .grad of the leaf becomes none, so that see_users_changes() of the next pass
//          makes it complete
//
// Between passes, the module's parameter may also have a local sum: what passes in no_sync() have
// added up on this rank, of the parameter's shape. During a pass it lies in .grad of the module's
// parameter, where autograd adds to it, and the state is none.
//
//   LocalSum  .grad of the module's parameter, between passes    kept here
//   none      a trap                                             nothing
//   kept      a trap                                             the sum
//   dropped   a trap                                             nothing: the user has dropped it,
//                                                                and the unit still waits for it
//
//   event                  none     kept                          dropped
//   see_users_changes()    -        dropped if the state is then complete, else -   -
//   begin_pass()           -        none: the sum goes to .grad   none: zeros go to .grad
//   keep_local_sum()       kept     kept                          kept
//   drop(), misplace()     -        dropped                       -
//   zero_grad()            -        none                          none
enum class GradientState { in_unit, complete, incomplete, broken, misplaced };
enum class LocalSum { none, kept, dropped };

class ParameterGradient {
 public:
  // `whole` is the module's parameter. The two traps have the shape of `leaf`.
  ParameterGradient(at::Tensor leaf, at::Tensor whole, at::Tensor not_reduced,
                    at::Tensor misplaced);

  GradientState state() const { return state_; }
  LocalSum local_sum() const { return local_sum_; }
  bool is_hidden() const;  // .grad of the leaf is the trap "have not been reduced"

  // The events, in the order in which they may come.

  // The user has asked for the leaf for the first time.
  void give();

  // A pass begins: compares .grad of the leaf with the state, because the user may have changed it.
  void see_users_changes();

  // Puts the local sum into .grad of the module's parameter, and hides the gradient. A local sum
  // that was dropped counts as zero if the unit waits for it, else as no gradient. `trainable`: the
  // parameter requires a gradient.
  void begin_pass(bool trainable, bool unit_waits);

  // Autograd is about to add a gradient of the leaf itself, which is part of the loss, to .grad.
  void gradient_of_leaf();

  // The pass has ended, and the unit has not reduced what lies in .grad of the module's parameter:
  // takes it out of there.
  void keep_local_sum();

  // The pass has ended: shows what .grad of the leaf was before it. Returns whether the gradient of
  // the pass has to be added to it.
  bool show_for_pass(bool trainable);

  // A part of the gradient, or of another one, has not been reduced.
  void hide();

  // The pass has thrown. What lies in .grad of the module's parameter is lost.
  void break_off();

  // The user has dropped the trap in .grad of the module's parameter.
  void drop();

  // The user has put another gradient in the place of that trap.
  void misplace();

  // The user has called zero_grad() of the model: drops the gradient and the local sum.
  void zero_grad();

 private:
  void show();
  void drop_local_sum();

  at::Tensor leaf_, whole_;
  at::Tensor not_reduced_, misplaced_;  // the traps
  GradientState state_{GradientState::in_unit};
  at::Tensor earlier_{};  // while the state is incomplete: what .grad of the leaf was before
  LocalSum local_sum_{LocalSum::none};
  at::Tensor sum_{};  // while `local_sum_` is kept
};

}  // namespace fsdp
