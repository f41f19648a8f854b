#pragma once

#include <base/todo.h>
#include <flat_parameter.h>
#include <nn/module.h>

#include <functional>
#include <memory>

namespace fsdp {

// Runs the backward passes of the units of one model. If a program has two models, each model has
// an object of its own, and the two objects share no state. "Pass" means backward pass. A pass
// "fails" if an exception ends it. A call of a module is "finished" when its full backward hook has
// run.
//
// During a pass, for each unit:
// - Unshard: when the gradient of its module's output arrives, the unit is unsharded, unless the
//   module's reads_parameters_in_backward() is false.
// - Collect: when the gradient of one of its parameters is complete, the gradient is collected.
// - Reduce: when all calls of its module in forward are finished, the unit is reduced: its
//   reduce-scatter is issued and the unit is resharded, in either order.
// - Overlap: this object waits for the reduce-scatter of the previous unit just before it issues
//   the reduce-scatter of this unit, and not earlier. So one unit computes while another is
//   reduced, and at most two flat gradients are alive besides the root's.
//
// At the end of the pass:
// - The remaining units are reduced, in reverse order of add(): those without a call, and those
//   with a call whose input needs no gradient or whose output is not part of the loss.
// - Then all units are resharded.
//
// Guarantees:
// - A unit with a trainable parameter is reduced exactly once per pass, whichever of its parameters
//   got a gradient.
// - All ranks reduce their units in the same order if all of them call their modules in the same
//   order and in the same way.
//
// Several passes:
// - If a pass keeps its graph, the next pass may go over the same calls again, also together with
//   calls of another forward.
// - If a pass frees its graph, no later pass can finish a call that was made before the end of this
//   pass.
//
// If a pass fails:
// - The next forward hook, or the next hook of another pass, drops what the failed pass had
//   collected or was still reducing. So the failed pass leaves nothing to the next one.
// - What the pass had reduced before stays until clear_sharded_gradient().
// - A forward that a hook runs inside a pass is no failure of the pass. After this forward, the
//   units that the pass still reads stay unsharded.
//
// If a pass runs inside another pass (a user's own activation checkpointing runs a forward again in
// backward, and then backward(); a hook may call autograd::grad()):
// - The inner pass is a part of the outer pass. What it adds to .grad is reduced with the other
//   gradients, once for each unit, at the end of the outer pass or before it.
// - The gradients that the outer pass has collected stay. The units that it has unsharded and still
//   reads stay unsharded.
// - What only the inner pass has unsharded may stay unsharded until the outer pass ends.
// - If an inner pass throws and its caller catches the exception, the outer pass continues. What
//   the inner pass had added to .grad stays there, as in one process, and is reduced with the rest.
// - A pass is an inner pass only if a pass over these units surrounds it. Otherwise, as in a hook
//   of another model, it ends on its own.
// - If a pass runs calls again that ran without gradients in forward, it counts as a pass over
//   these units. So it surrounds the passes inside it.
//
// Throws:
// - std::logic_error, in the pass, if a gradient arrives after its unit was reduced. The message
//   names the unit and the parameter.
class BackwardHooks {
 public:
  virtual ~BackwardHooks() = default;
  BackwardHooks(const BackwardHooks&) = delete;  // the hooks hold this object

  // Registers the hooks on `module` and on the unit's parameters. Call this function for the
  // modules in the order of forward, each time after register_forward_hooks() for the same module.
  // - The module's hooks own this object and the unit; a parameter's hooks own neither. So all are
  //   freed with the modules.
  // - If a parameter outlives the modules, its hooks do nothing.
  virtual void add(Module& module, std::shared_ptr<FlatParameter> unit) = 0;

  // Sets the function that runs at the end of every pass, when all units are reduced and resharded.
  // If a pass fails, the function runs when the next forward or backward notices the failure.
  void on_end(std::function<void()> callback) { on_end_ = std::move(callback); }

  // Extension (see "Going further" in the handout), with FSDP2's name. Switches the reduction on or
  // off. While it is off:
  // - A pass reduces no unit: gradients stay in .grad, and those of the next pass are added to
  //   them.
  // - Where the pass would reduce a unit, it calls FlatParameter::widen_gradients() instead, which
  //   converts the unit's gradients to a wider dtype if necessary.
  // - If a pass fails, all gradients are dropped.
  virtual void set_requires_gradient_sync(bool /*sync*/) {
    todo("BackwardHooks::set_requires_gradient_sync", "4.5");
  }
  // Reduces every unit with a trainable parameter, in reverse order of add(). Waits for the
  // reductions, and then calls the function of on_end(). Call it between passes, on all ranks.
  virtual void sync_gradients() { todo("BackwardHooks::sync_gradients", "4.5"); }

 protected:
  BackwardHooks() = default;

  std::function<void()> on_end_;
};

// Makes an object without units.
std::shared_ptr<BackwardHooks> make_backward_hooks();

}  // namespace fsdp
