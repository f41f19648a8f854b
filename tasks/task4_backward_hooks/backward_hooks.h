#pragma once

#include <base/todo.h>
#include <flat_parameter.h>
#include <nn/module.h>

#include <functional>
#include <memory>

namespace fsdp {

// Runs the backward passes of the units of one model. If one loss uses two models, each model has
// an object of its own. "Pass" means backward pass.
//
// During a pass, for each unit:
// - Unshard: when the gradient of its module's output arrives, the unit is unsharded, unless the
//   module's reads_parameters_in_backward() is false.
// - Collect: when the gradient of one of its parameters is complete, the gradient is collected.
// - Reduce: when all calls of its module in forward have come back in full backward hooks, the unit
//   is reduced: its reduce-scatter is issued and it is resharded, in either order.
// - Overlap: the reduce-scatter of the previous unit is waited for only when the reduce-scatter of
//   this unit is about to be issued. So one unit computes while another is reduced, and at most two
//   flat gradients are alive besides the root's.
//
// At the end of the pass:
// - The remaining units are reduced, in reverse order of add(): those without a call, and those
//   with a call whose input needs no gradient or whose output is not part of the loss.
// - Then all units are resharded.
//
// Guarantees:
// - A unit with a trainable parameter is reduced exactly once per pass, whatever parameters got a
//   gradient.
// - All ranks reduce in the same order if all of them call their modules in the same order and in
//   the same way.
//
// Several passes:
// - If a pass keeps its graph, the next pass may go over the same calls again, also together with
//   calls of another forward.
// - A pass that frees its graph ends all calls before it.
//
// If an exception breaks off a pass:
// - What the pass had collected or was still reducing is dropped at the first sign of what comes
//   next: the forward of a module, or another pass. So the pass leaves nothing to the next one.
// - What the pass had reduced before stays until clear_sharded_gradient().
// - A forward that a hook runs inside a pass does not break the pass off, and leaves unsharded what
//   the pass still reads.
//
// A pass inside another one (a user's own checkpoint runs forward again in backward, and then
// backward(); a hook may call autograd::grad()):
// - The inner pass is a part of the outer one. What it adds to .grad is reduced with the other
//   gradients, once for each unit, at the end of the outer pass or before it.
// - What the outer pass has collected, and what it has unsharded and still reads, stays.
// - If an inner pass throws and its caller catches the exception, the outer pass continues. What
//   the inner pass had added to .grad counts, as in one process.
// - If no pass over these units surrounds a pass, as in a hook of another model, that pass is not
//   an inner pass: it ends on its own.
// - A pass that runs calls again which ran without gradients in forward counts as a pass over these
//   units, so it surrounds the passes inside it.
//
// Throws:
// - std::logic_error, in the pass, if a gradient arrives after its unit was reduced. The message
//   names the unit and the parameter.
class BackwardHooks {
 public:
  virtual ~BackwardHooks() = default;
  BackwardHooks(const BackwardHooks&) = delete;  // the hooks hold this object

  // Registers the hooks on `module` and on the unit's parameters. Call it in the order of forward.
  // - The module's hooks own this object and the unit; a parameter's hooks own neither. So all are
  //   freed with the modules.
  // - If a parameter outlives the modules, its hooks do nothing.
  virtual void add(Module& module, std::shared_ptr<FlatParameter> unit) = 0;

  // Sets the function that runs at the end of every pass, when all units are reduced and resharded.
  // For a pass that broke off, it runs when the next forward or backward notices this.
  void on_end(std::function<void()> callback) { on_end_ = std::move(callback); }

  // Extension (see "Going further" in the handout), with FSDP2's name. While it is off:
  // - A pass reduces no unit: gradients stay in .grad, and those of the next pass are added to
  //   them.
  // - When a unit would be reduced, its gradients are widened instead
  //   (FlatParameter::widen_gradients()).
  // - A pass that breaks off drops all gradients.
  virtual void set_requires_gradient_sync(bool /*sync*/) {
    todo("BackwardHooks::set_requires_gradient_sync", "4.5");
  }
  // Reduces every unit with a trainable parameter, in reverse order of add(), waits, and calls the
  // function of on_end(). Call it between passes, on all ranks.
  virtual void sync_gradients() { todo("BackwardHooks::sync_gradients", "4.5"); }

 protected:
  BackwardHooks() = default;

  std::function<void()> on_end_;
};

// Makes an object without units.
std::shared_ptr<BackwardHooks> make_backward_hooks();

}  // namespace fsdp
