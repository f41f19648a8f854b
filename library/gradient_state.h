#pragma once

#include <base/torch.h>

namespace fsdp {

// The gradient of one parameter of a sharded model: which tensor is in .grad of its leaf, and what
// is kept beside it. This class knows no ranks and no units: ShardedGradients reports the events to
// it, and puts a trap into .grad of the module's parameter between backward passes
// (parameter_traps.h).
//
// A trap is a tensor whose values cannot be read: reading them throws an error that says what to
// do.
//
//   state       .grad of the leaf                    kept here
//   in_unit     not set by this class: the user      nothing; the unit has the sharded gradient
//               has not asked for the leaf
//   complete    the gradient, or none                nothing
//   incomplete  the trap "have not been reduced"     what .grad of the leaf was before: the sum of
//                                                    earlier passes that were reduced, or none
//   broken      the trap "have not been reduced"     nothing: a part was lost in a pass that threw
//   misplaced   the trap "were put into the          nothing; the user's tensor is in .grad of the
//               module's parameters"                 module's parameter
//
// From the start of a backward pass to its end, a gradient that the pass may change is incomplete
// or broken (or in_unit), so that all gradients change together at the end of the pass. After a
// pass in no_sync() a gradient stays incomplete or broken.
//
//   event                  in_unit    complete     incomplete   broken     misplaced
//   give()                 complete   error        error        error      error
//   see_users_changes()    -          [1]          [2]          [2]        complete
//   begin_pass()           -          [3]          -            -          error
//   gradient_of_leaf()     -          -            complete     [4]        -
//   show_for_pass()        -          -            complete     -          -
//   hide()                 error      incomplete   error        error      error
//   break_off()            -          [1]          [5]          [5]        -
//   drop(), zero_grad()    -          -            complete     [6]        complete
//   misplace()             -          misplaced    misplaced    misplaced  misplaced
//
//   -      The state stays.
//   error  std::logic_error whose text begins with "internal error".
//   [1]    Stays complete. But if the user kept the trap and put it back into .grad of the leaf:
//          incomplete, and broken in break_off().
//   [2]    Stays if .grad of the leaf is still the trap. Complete if the user has dropped the trap
//          or put a gradient in its place.
//   [3]    Incomplete. Stays complete if the parameter is frozen and has no gradient.
//   [4]    Stays broken. .grad of the leaf becomes none, and autograd puts this gradient there.
//   [5]    Broken. Complete if .grad of the leaf is not the trap any more.
//   [6]    Stays broken. .grad of the leaf becomes none, so see_users_changes() of the next pass
//          makes the state complete.
//
// Between passes, the module's parameter can also have a local sum: the gradients that this rank
// has added up in no_sync(), of the parameter's shape. During a pass the local sum is in .grad of
// the module's parameter, where autograd adds to it, and LocalSum is none.
//
//   LocalSum  .grad of the module's parameter, between passes    kept here
//   none      a trap                                             nothing
//   kept      a trap                                             the sum
//   dropped   a trap                                             nothing: the user has dropped the
//                                                                sum, and the unit may still wait
//                                                                for it
//
//   event                  none     kept                          dropped
//   see_users_changes()    -        dropped if the state becomes  -
//                                   or stays complete, else -
//   begin_pass()           -        none: the sum goes to .grad   none: zeros go to .grad if the
//                                                                 unit waits for the sum
//   keep_local_sum()       kept     kept                          kept
//   drop(), misplace()     -        dropped                       -
//   zero_grad()            -        none                          none
enum class GradientState { in_unit, complete, incomplete, broken, misplaced };
enum class LocalSum { none, kept, dropped };

class ParameterGradient {
 public:
  // `whole` is the module's parameter. `not_reduced` is the trap "have not been reduced" and
  // `misplaced` is the trap "were put into the module's parameters". A trap is a tensor whose
  // values cannot be read. Both traps have the shape of `leaf`.
  ParameterGradient(at::Tensor leaf, at::Tensor whole, at::Tensor not_reduced,
                    at::Tensor misplaced);

  GradientState state() const { return state_; }
  LocalSum local_sum() const { return local_sum_; }
  // Returns whether .grad of the sharded parameter's leaf is the trap "have not been reduced", a
  // tensor that throws when it is read.
  bool is_hidden() const;

  // Each of the following functions of ParameterGradient handles one event. They are in the order
  // in which the events can happen. ShardedGradients calls the function when its event happens.

  // Event: the user asks for the leaves (parameters() of the sharded model) for the first time.
  // give() makes the state of this parameter's gradient GradientState::complete.
  void give();

  // Event: a backward pass begins. see_users_changes() updates the state if the user has changed
  // .grad of the leaf. If the state is then complete, drops the local sum. If .grad of the leaf is
  // the trap "were put into the module's parameters" (a tensor that throws when it is read), takes
  // it out.
  void see_users_changes();

  // Event: a backward pass begins, after see_users_changes(). begin_pass() moves the local sum into
  // .grad of the module's parameter, and puts the trap "have not been reduced" (a tensor that
  // throws when it is read) into .grad of the leaf. A local sum that the user has dropped counts as
  // zero if `unit_waits`, that is, if the unit still has gradients to reduce; else as no gradient.
  // `trainable`: whether the parameter requires a gradient.
  void begin_pass(bool trainable, bool unit_waits);

  // Event: autograd is about to add a gradient to .grad of the leaf, because the loss was computed
  // from the leaf itself. If .grad of the leaf is the trap "have not been reduced" (a tensor that
  // throws when it is read), gradient_of_leaf() takes the trap out.
  void gradient_of_leaf();

  // Event: the pass has ended, and the unit has not reduced the gradient in .grad of the module's
  // parameter. keep_local_sum() makes that gradient the local sum.
  void keep_local_sum();

  // Event: the pass has ended. show_for_pass() puts the .grad from before the pass back into .grad
  // of the leaf. Returns whether the caller must add the gradient of the pass to .grad of the leaf.
  bool show_for_pass(bool trainable);

  // Event: the pass has ended, and a part of this gradient, or of another parameter's gradient, has
  // not been reduced. hide() puts the trap "have not been reduced" (a tensor that throws when it is
  // read) into .grad of the leaf.
  void hide();

  // Event: the pass has thrown. break_off() discards the gradient in .grad of the module's
  // parameter, and the sum of earlier passes that was in .grad of the leaf.
  void break_off();

  // Event: the user has dropped the trap (a tensor that throws when it is read) in .grad of the
  // module's parameter. drop() drops the gradient and the local sum.
  void drop();

  // Event: the user has put a gradient into .grad of the module's parameter, in the place of the
  // trap. misplace() drops the gradient and the local sum. Unless the state is in_unit, misplace()
  // also puts the trap "were put into the module's parameters" into .grad of the leaf.
  void misplace();

  // Event: the user has called zero_grad() of the model. zero_grad() drops the gradient and the
  // local sum.
  void zero_grad();

 private:
  void show();
  void drop_local_sum();

  at::Tensor leaf_, whole_;
  // The two traps that this object puts into .grad of leaf_. not_reduced_ is the trap "have not
  // been reduced", and misplaced_ is the trap "were put into the module's parameters". A trap is a
  // tensor that throws when it is read.
  at::Tensor not_reduced_, misplaced_;
  GradientState state_{GradientState::in_unit};
  // If the state is incomplete: the tensor that was in .grad of the leaf before the trap was put
  // there.
  at::Tensor earlier_{};
  LocalSum local_sum_{LocalSum::none};
  // If local_sum_ is LocalSum::kept: this rank's sum of the parameter's gradients that have not
  // been reduced.
  at::Tensor sum_{};
};

}  // namespace fsdp
