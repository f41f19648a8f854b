#pragma once

#include <backward_hooks.h>

#include <map>
#include <set>
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
    int64_t forward_calls{};  // in forward, with gradients recorded
    int64_t unrecorded{};     // in forward, without: a user's own checkpoint may run them again
    int64_t inside{};         // of these, those inside a call of a module that records gradients
    size_t unsharded_by{};    // the number of passes that ran when one unsharded it; 0: none did
    bool reduced{};           // in the outermost pass
  };

  // A node of one pass may run another pass, which ends before the node does.
  struct Pass {
    int number;                                 // the engine's
    std::weak_ptr<void> under_way;              // the engine holds it until the pass has ended
    std::map<Unit*, int64_t> backward_calls{};  // calls of each unit, in this pass
  };

  void begin_call(Module& module);
  void end_call(Module& module, Unit& unit, bool returned);
  void run_again(Unit& unit);              // one of its calls, in a checkpoint of the user's
  Pass& begin_backward();                  // at every sign of a pass: asks for end_backward() once
  void pre_backward(Unit& unit);           // unshards it
  void collect(Unit& unit, size_t index);  // the gradient of one of its parameters
  void come_back(Unit& unit);              // one call of its module, in the innermost pass
  bool more_may_come(const Unit& unit) const;
  void post_backward(Unit& unit);  // issues its reduction and reshards it
  void reshard(Unit& unit);
  void wait_for_reduction();  // waits for the one under way, whichever unit's it is
  void end_backward();        // when the engine has run all of a pass
  void end_inner_pass(const Pass& pass, bool graph_is_kept);
  void end_outermost_pass(bool graph_is_kept);
  void drop_broken_passes();

  std::vector<std::shared_ptr<Unit>> units_;
  std::shared_ptr<FlatParameter> reducing_;  // its reduce-scatter is under way
  std::vector<Pass> passes_;                 // the outermost one first
  std::set<const void*> recorded_;           // calls of modules under way, with gradients recorded
  bool requires_gradient_sync_{true};
};

}  // namespace fsdp
