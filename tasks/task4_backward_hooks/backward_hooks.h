#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <functional>
#include <memory>
#include <vector>

namespace fsdp {

// The backward pass of the units of one model. For each unit:
// - when the gradient of its module's output arrives, it is gathered again;
// - a parameter's gradient moves into the flat gradient as soon as it is complete;
// - when the module has no gradient left to compute, its reduce-scatter is issued and its
//   parameters are freed, in either order; that reduce-scatter is waited for before the next one is
//   issued, so that at most two flat gradients are alive besides the root's;
// - at the end of the backward pass the units that gave no sign (their input needs no gradient,
//   or a call of them was not part of the loss; one whose graph is gone need not count) are
//   reduced, in reverse order of add(), and all are freed.
// Every unit with a trainable parameter is reduced exactly once per backward pass, on every rank in
// the same order, whatever parameters got a gradient.
class BackwardHooks : public std::enable_shared_from_this<BackwardHooks> {
 public:
  // Registers the hooks on `module` and on the unit's parameters. In the order of forward.
  void add(Module& module, std::shared_ptr<FlatParameter> unit);

  // Runs at the end of every backward pass, when all units are reduced and freed.
  void on_end(std::function<void()> callback) { on_end_ = std::move(callback); }

 private:
  std::function<void()> on_end_;

  struct Unit {
    std::shared_ptr<FlatParameter> flat;
    int64_t calls{};  // in forward, which will end in a full backward hook
    bool reduced{};   // in this backward pass
  };

  void begin();               // at every sign of a backward pass: asks for end() once
  void finish(Unit& unit);    // issues its reduction and frees its parameters
  void wait_for_reduction();  // for the one under way
  void end();                 // when the engine has run everything

  std::vector<std::shared_ptr<Unit>> units_;

  // Add what you need.
};

}  // namespace fsdp
