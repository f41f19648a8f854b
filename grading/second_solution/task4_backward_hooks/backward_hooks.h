#pragma once

#include <flat_parameter.h>
#include <nn/module.h>

#include <functional>
#include <memory>
#include <vector>

namespace fsdp {

// The contract is in tasks/. Here every call of a module in forward is an object that the graph
// holds, and a unit is finished when none of its calls is left to come back. A call whose graph is
// gone is not waited for.
class BackwardHooks : public std::enable_shared_from_this<BackwardHooks> {
 public:
  void add(Module& module, std::shared_ptr<FlatParameter> unit);
  void on_end(std::function<void()> callback) { on_end_ = std::move(callback); }

 private:
  struct Call {
    uint64_t first_node;  // the number of the graph's next node when the call began
  };
  struct Unit {
    std::shared_ptr<FlatParameter> flat;
    std::vector<std::shared_ptr<Call>> in_forward;  // not ended; the innermost last
    std::vector<std::weak_ptr<Call>> to_come;       // ended, and not seen in backward
    bool reduced{};                                 // in this backward pass
  };
  struct Pass {};

  at::Tensor enter_forward(const std::shared_ptr<Unit>& unit, const at::Tensor& input);
  at::Tensor leave_forward(const std::shared_ptr<Unit>& unit, const at::Tensor& output);
  void enter_backward(Unit& unit);
  void leave_backward(Unit& unit, const std::shared_ptr<Call>& call);
  void begin();
  void finish(Unit& unit);
  void end();

  std::vector<std::shared_ptr<Unit>> units_;
  std::shared_ptr<FlatParameter> reducing_;  // its reduce-scatter is under way
  std::weak_ptr<Pass> pass_;                 // held by the engine while a backward pass lasts
  bool ended_{true};                         // the latest one reached its end
  std::function<void()> on_end_;
};

}  // namespace fsdp
