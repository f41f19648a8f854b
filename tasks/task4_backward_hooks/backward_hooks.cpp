#include <backward_hooks.h>
#include <base/todo.h>
#include <nn/gradient_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <stdexcept>
#include <vector>

namespace fsdp {

class BackwardHooksImpl final : public BackwardHooks,
                                public std::enable_shared_from_this<BackwardHooksImpl> {
 public:
  void add(Module& module, std::shared_ptr<FlatParameter> unit) override;

 private:
  struct Unit {
    std::shared_ptr<FlatParameter> flat;
    int64_t forward_calls{};   // calls of the module in forward, with gradients recorded
    int64_t backward_calls{};  // how many of `forward_calls` are finished in this pass
    bool reduced{};            // whether the unit was reduced in this pass
  };

  void begin_backward();           // every hook of a pass calls it; it asks for end_backward() once
  void post_backward(Unit& unit);  // issues the unit's reduction and reshards the unit
  void wait_for_reduction();       // waits for the reduction under way, of whichever unit
  void end_backward();             // called when the engine has run all nodes of the pass

  std::vector<std::shared_ptr<Unit>> units_;

  // Add what you need.
};

void BackwardHooksImpl::add(Module& module, std::shared_ptr<FlatParameter> flat) {
  todo("BackwardHooks::add", "4.1");
}

void BackwardHooksImpl::begin_backward() {
  // Problem 4.4. Until you solve it, this does nothing, so that problems 4.1 to 4.3 can be tested.
}

void BackwardHooksImpl::post_backward(Unit& unit) {
  todo("BackwardHooks::post_backward", "4.2");
}

void BackwardHooksImpl::wait_for_reduction() {
  todo("BackwardHooks::wait_for_reduction", "4.2");
}

void BackwardHooksImpl::end_backward() {
  todo("BackwardHooks::end_backward", "4.4");
}

std::shared_ptr<BackwardHooks> make_backward_hooks() {
  return std::make_shared<BackwardHooksImpl>();
}

}  // namespace fsdp
