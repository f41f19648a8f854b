#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace fsdp {

// Runs the backward pass of the units of one model; two models in one loss have an object each. For
// each unit:
// - When the gradient of its module's output arrives, the unit is unsharded.
// - When the gradient of one of its parameters is complete, it is collected.
// - When all calls of its module in forward have come back in full backward hooks, the unit is
//   reduced: its reduce-scatter is issued and it is resharded, in either order. Just before, and
//   not earlier, the reduce-scatter before is waited for. So one computes while another is reduced,
//   and at most two flat gradients are alive besides the root's.
// - At the end of the pass the remaining units are reduced, in reverse order of add(): the input of
//   a call needs no gradient, or its output is not part of the loss. Then all units are resharded.
// A unit with a trainable parameter is reduced exactly once per pass, whatever parameters got a
// gradient. All ranks reduce in one order if all call their modules in one order and alike. If a
// gradient arrives after its unit was reduced, the pass throws std::logic_error, which names unit
// and parameter. If a pass keeps its graph, the next pass may go over the same calls again, also
// beside those of another forward. A pass that frees its graph ends all calls before it.
// A pass that an exception breaks off leaves nothing to the next one: what it had collected or was
// still reducing is dropped at the first sign of what comes next, the forward of a module or
// another backward. What it had reduced before stays until drop_gradient(). A forward that a hook
// runs inside a pass does not break it off.
class BackwardHooks : public std::enable_shared_from_this<BackwardHooks> {
 public:
  BackwardHooks() = default;
  BackwardHooks(const BackwardHooks&) = delete;  // the hooks hold this object

  // Registers the hooks on `module` and on the unit's parameters. Call it in the order of forward.
  // The module's hooks own this object and the unit, a parameter's hooks own neither: with the
  // modules everything is freed. The hooks of a parameter that is still held then do nothing.
  void add(Module& module, std::shared_ptr<FlatParameter> unit);

  // Sets what runs at the end of every backward pass, when all units are reduced and resharded. For
  // a pass that broke off it runs at that first sign of what comes next.
  void on_end(std::function<void()> callback) { on_end_ = std::move(callback); }

 private:
  std::function<void()> on_end_;

  // The calls of a module in forward, with gradients recorded. The first one after a pass begins a
  // new count, unless the pass has kept its graph; until then the next pass may go over the same
  // calls again.
  class Calls {
   public:
    void returned();        // one more, in forward
    bool last_came_back();  // one more, in backward: whether it was the last of them
    void end_pass(bool graph_is_kept);

   private:
    int64_t made_{};
    int64_t came_back_{};  // in this pass
    bool of_an_earlier_pass_{};
  };

  struct Unit {
    std::shared_ptr<FlatParameter> flat;
    Calls calls{};
    bool reduced{};  // in this pass
  };

  // A backward pass, from its first sign to its end. One reduction is under way at most.
  class Pass {
   public:
    explicit Pass(int id) : id_(id) {}
    int id() const { return id_; }  // the engine's number of it
    void reduce(const std::shared_ptr<FlatParameter>& unit);
    void wait();

   private:
    int id_;
    std::shared_ptr<FlatParameter> in_flight_;  // whose reduction is under way
  };

  void begin_backward();           // at every sign of a pass: asks for end_backward() once
  void post_backward(Unit& unit);  // issues its reduction and reshards it
  void wait_for_reduction();       // waits for the one under way, whichever unit's it is
  void end_backward();             // when the engine has run everything

  std::vector<std::shared_ptr<Unit>> units_;

 public:
  // Extension (see "Going further" in the handout), with FSDP2's name. While this is off, a pass
  // reduces no unit: gradients stay in .grad, and those of the next pass are added to them. A pass
  // that breaks off drops them all.
  void set_requires_gradient_sync(bool sync);
  // Reduces every unit with a trainable parameter, in the reverse order of add(), waits, and calls
  // what on_end() has set. Call it between passes, on all ranks.
  void sync_gradients();

 private:
  void hook_forward(Module& module, const std::shared_ptr<Unit>& unit);
  void hook_backward(Module& module, const std::shared_ptr<Unit>& unit);
  void hook_parameters(const std::shared_ptr<Unit>& unit);
  void collect(Unit& unit, size_t index);  // a gradient is complete
  void drop_broken_pass();                 // if there is one: what is left of it, and on_end_
  void forget_pass(bool graph_is_kept);    // makes everything ready for the next one

  std::optional<Pass> pass_;  // under way, or broken off
  bool sync_{true};           // whether a pass reduces
};

}  // namespace fsdp
