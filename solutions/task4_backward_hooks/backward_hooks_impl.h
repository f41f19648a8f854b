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
    int64_t forward_calls{};  // calls in forward with gradients recorded
    int64_t unrecorded{};     // calls in forward without gradients; a checkpoint may run them again
    int64_t inside{};         // `unrecorded` calls inside a call of a module that records gradients
    size_t unsharded_by{};    // number of passes under way when one unsharded the unit; 0: none did
    bool reduced{};           // whether the outermost pass has reduced the unit
  };

  // A node of one pass may run another pass, which ends before the node does.
  struct Pass {
    int number;                     // the engine's number of this pass
    std::weak_ptr<void> under_way;  // the engine holds it until the pass has ended
    std::map<Unit*, int64_t>
        backward_calls{};  // how many calls of each unit came back in this pass
  };

  void begin_call(Module& module);
  void end_call(Module& module, Unit& unit, bool returned);
  void run_again(Unit& unit);     // called when a user's checkpoint runs one of its calls again
  Pass& begin_backward();         // called at every sign of a pass; asks for end_backward() once
  void pre_backward(Unit& unit);  // unshards the unit
  void collect(Unit& unit, size_t index);  // collects the gradient of one of its parameters
  void come_back(Unit& unit);  // called when a call of its module comes back in the innermost pass
  bool more_may_come(const Unit& unit) const;
  void post_backward(Unit& unit);  // issues the unit's reduction and reshards the unit
  void reshard(Unit& unit);
  void wait_for_reduction();  // waits for the reduction under way, of whichever unit
  void end_backward();        // called when the engine has run the whole pass
  void end_inner_pass(const Pass& pass, bool graph_is_kept);
  void end_outermost_pass(bool graph_is_kept);
  void drop_broken_passes();

  std::vector<std::shared_ptr<Unit>> units_;
  std::shared_ptr<FlatParameter> reducing_;  // its reduce-scatter is under way
  std::vector<Pass> passes_;                 // the passes under way, the outermost one first
  std::set<const void*> recorded_;           // calls of modules under way, with gradients recorded
  bool requires_gradient_sync_{true};
};

}  // namespace fsdp
