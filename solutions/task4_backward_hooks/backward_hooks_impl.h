#pragma once

#include <backward_hooks.h>

#include <vector>

namespace fsdp {

class BackwardHooksImpl final : public BackwardHooks,
                                public std::enable_shared_from_this<BackwardHooksImpl> {
 public:
  void add(Module& module, std::shared_ptr<FlatParameter> unit) override;
  void set_requires_gradient_sync(bool sync) override;
  void sync_gradients() override;

 private:
  struct Unit {
    std::shared_ptr<FlatParameter> flat;
    int64_t calls{};      // in forward, with gradients recorded
    int64_t came_back{};  // of these calls, in this pass
    bool reduced{};       // in this pass
  };

  void begin_backward();                   // at every sign of a pass: asks for end_backward() once
  void collect(Unit& unit, size_t index);  // the gradient of one of its parameters
  void post_backward(Unit& unit);          // issues its reduction and reshards it
  void wait_for_reduction();               // waits for the one under way, whichever unit's it is
  void end_backward();                     // when the engine has run everything
  void drop_broken_pass();

  std::vector<std::shared_ptr<Unit>> units_;
  std::shared_ptr<FlatParameter> reducing_;  // its reduce-scatter is under way
  int pass_{-1};                             // the engine's number of the pass that has not ended
  bool requires_gradient_sync_{true};
};

}  // namespace fsdp
