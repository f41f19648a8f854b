#pragma once

#include <base/todo.h>
#include <flat_parameter.h>
#include <nn/module.h>

#include <functional>
#include <memory>

namespace fsdp {

// Runs the backward pass of the units of one model; two models in one loss have an object each. For
// each unit:
// - When the gradient of its module's output arrives, the unit is unsharded, unless the module's
//   reads_parameters_in_backward() is false.
// - When the gradient of one of its parameters is complete, it is collected.
// - When all calls of its module in forward have come back in full backward hooks, the unit is
//   reduced: its reduce-scatter is issued and it is resharded, in either order. The reduce-scatter
//   of the previous unit is waited for only when this one is about to be issued. So one computes
//   while another is reduced, and at most two flat gradients are alive besides the root's.
// - At the end of the pass the remaining units are reduced, in reverse order of add(): those with a
//   call whose input needs no gradient or whose output is not part of the loss. Then all units are
//   resharded.
// A unit with a trainable parameter is reduced exactly once per pass, whatever parameters got a
// gradient. All ranks reduce in one order if all call their modules in one order and alike. If a
// gradient arrives after its unit was reduced, the pass throws std::logic_error, which names unit
// and parameter. If a pass keeps its graph, the next pass may go over the same calls again, also
// beside those of another forward. A pass that frees its graph ends all calls before it.
// A pass that an exception breaks off leaves nothing to the next one: what it had collected or was
// still reducing is dropped at the first sign of what comes next, the forward of a module or
// another backward. What it had reduced before stays until clear_sharded_gradient(). A forward that
// a hook runs inside a pass does not break it off, and leaves unsharded what the pass still reads.
// A pass may run inside another one: a user's own checkpoint runs forward again in backward, and
// then backward(); a hook may call autograd::grad().
// - The inner pass is a part of the outer one. What it adds to .grad is reduced with the rest, once
//   for each unit, at the end of the outer pass or before it.
// - What the outer pass has collected, and what it has unsharded and still reads, stays.
// - If an inner pass throws and its caller catches the exception, the outer pass goes on. What the
//   inner one had added to .grad counts, as in one process.
// - A pass that no pass over these units surrounds, as in a hook of another model, ends by itself.
//   A pass that runs calls again which ran without gradients in forward surrounds what is inside
//   it.
class BackwardHooks {
 public:
  virtual ~BackwardHooks() = default;
  BackwardHooks(const BackwardHooks&) = delete;  // the hooks hold this object

  // Registers the hooks on `module` and on the unit's parameters. Call it in the order of forward.
  // The module's hooks own this object and the unit; a parameter's hooks own neither. So all are
  // freed with the modules. If somebody still holds a parameter then, its hooks do nothing.
  virtual void add(Module& module, std::shared_ptr<FlatParameter> unit) = 0;

  // Sets what runs at the end of every backward pass, when all units are reduced and resharded. For
  // a pass that broke off it runs when the next forward or backward notices this.
  void on_end(std::function<void()> callback) { on_end_ = std::move(callback); }

  // Extension (see "Going further" in the handout), with FSDP2's name. While this is off, a pass
  // reduces no unit: gradients stay in .grad, and those of the next pass are added to them. Where a
  // unit would be reduced, its gradients are widened instead (FlatParameter::widen_gradients()). A
  // pass that breaks off drops them all.
  virtual void set_requires_gradient_sync(bool /*sync*/) {
    todo("BackwardHooks::set_requires_gradient_sync", "4.5");
  }
  // Reduces every unit with a trainable parameter, in the reverse order of add(), waits, and calls
  // what on_end() has set. Call it between passes, on all ranks.
  virtual void sync_gradients() { todo("BackwardHooks::sync_gradients", "4.5"); }

 protected:
  BackwardHooks() = default;

  std::function<void()> on_end_;
};

// Makes an object without units.
std::shared_ptr<BackwardHooks> make_backward_hooks();

}  // namespace fsdp
