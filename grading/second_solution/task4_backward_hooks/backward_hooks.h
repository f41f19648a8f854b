#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <functional>
#include <memory>
#include <vector>

namespace fsdp {

// The contract is in tasks/. Here every call of a module in forward is an object that the graph
// holds, and a unit is finished when every call whose graph is still there has come back.
class BackwardHooks : public std::enable_shared_from_this<BackwardHooks> {
 public:
  BackwardHooks() = default;
  BackwardHooks(const BackwardHooks&) = delete;

  void add(Module& module, std::shared_ptr<FlatParameter> unit);
  void on_end(std::function<void()> callback) { on_end_ = std::move(callback); }
  void set_requires_gradient_sync(bool sync);
  void sync_gradients();

 private:
  struct Call {
    uint64_t first_node;   // the number of the graph's next node when the call began
    const void* inside{};  // the view of its input that the module works on, to compare with
    bool begun{};          // in this pass: the gradient of its output came
    bool back{};           // in this pass: all of it is over
  };
  struct Unit {
    std::shared_ptr<FlatParameter> flat;
    std::vector<std::shared_ptr<Call>> in_forward;  // not ended; the innermost last
    std::vector<std::weak_ptr<Call>> calls;         // ended, and their graph may be there
    bool reduced{};                                 // in this backward pass
    bool read_in_backward{};

    void forget_calls(bool graph_is_kept);
  };
  struct Pass {};

  at::Tensor enter_forward(const std::shared_ptr<Unit>& unit, const at::Tensor& input);
  at::Tensor leave_forward(const std::shared_ptr<Unit>& unit, const at::Tensor& output);
  void enter_backward(Unit& unit, Call& call);
  void collect(Unit& unit, size_t index);
  void leave_backward(Unit& unit, Call& call);
  void begin_backward();
  void post_backward(Unit& unit);
  void reduce(Unit& unit);
  void finish();
  void end_backward();
  void drop_broken_pass();

  std::vector<std::shared_ptr<Unit>> units_;
  std::shared_ptr<FlatParameter> reducing_;  // its reduce-scatter is under way
  std::weak_ptr<Pass> pass_;                 // held by the engine while a backward pass lasts
  bool ended_{true};                         // the latest one reached its end
  bool sync_{true};
  std::function<void()> on_end_;
};

}  // namespace fsdp
