#pragma once

#include <base/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

struct Tape;  // the recorded operations

// Deferred initialization: records a construction, for models larger than the memory of one rank.
//   std::shared_ptr<Net> net;
//   DeferredInit init([&] { net = std::make_shared<Net>(); });     // parameters of 0 bytes
//   at::Tensor weight = init.materialize_tensor(net->fc->weight);  // this one, with its values
// Materialized values are, to the bit, those of eager construction, in whatever order the caller
// materializes tensors.
class DeferredInit {
 public:
  // Runs `construct` once and records it. Other threads are not recorded. "Before" means: before
  // this call.
  // - Tensors are made on the meta device, without memory, and every operation on them is recorded.
  //   (torch::tensor(vector) still makes a CPU tensor.)
  // - Generators move as in eager construction: a random operation draws at once, into scratch
  //   memory (one tensor), and the state that its generator had until then is kept (5,056 bytes).
  // - An operation is performed at once too, on materialized copies, if the meta device cannot do
  //   it (item(), nonzero()), if it makes a sparse tensor, or if it writes to a tensor made before.
  // - Tensors made before are not redirected. A recorded operation that reads one keeps a copy.
  // - If an operation on a recorded tensor returns a view of a tensor made before
  //   (before.view_as(recorded)), it is recorded too, as a view of the copy.
  // Throws:
  // - what `construct` throws; the recording has ended then;
  // - if it is called inside itself, if an operation asks for a device other than the CPU, or if
  //   memory is used through a pointer.
  explicit DeferredInit(const std::function<void()>& construct);
  ~DeferredInit();
  DeferredInit(const DeferredInit&) = delete;  // one owner of what was recorded
  DeferredInit& operator=(const DeferredInit&) = delete;

  // Returns the recorded operations, as aten::name, in order. Views are not recorded.
  [[nodiscard]] std::vector<std::string> operations() const;

  // Returns the values of `tensor`: a new CPU tensor of the same sizes and strides.
  // - Replays what the values of `tensor` depend on, and nothing else.
  // - At any time, at most this tensor and those that it is computed from are alive.
  // - `tensor` and the generators stay unchanged.
  // - If `tensor` was not recorded, returns `tensor` itself.
  [[nodiscard]] at::Tensor materialize_tensor(const at::Tensor& tensor) const;

  // Materializes the recorded parameters and buffers of `module` in place.
  // - Replays nothing that they do not depend on.
  // - They stay the same Variables.
  // - Tensors that share memory in eager construction share it here too, also with tensors that an
  //   earlier call materialized and a module still holds. This object keeps no such memory alive.
  // - A tensor that `module` has not registered stays on the meta device.
  void materialize_module(torch::nn::Module& module) const;

 private:
  std::unique_ptr<Tape> tape_;
};

// Runs `construct` once with its tensors on the meta device, for the names and sizes of a model.
// - A random operation moves no generator.
// - An operation that the meta device cannot do (randperm()) is performed on the CPU, on tensors of
//   the right sizes. It moves no generator either.
// - If such an operation writes to a tensor made before, the values that it writes mean nothing.
// Throws what DeferredInit() throws.
void construct_on_meta(const std::function<void()>& construct);

// Puts `variable` on the memory of `data`, as set_data() does, even on another device. `variable`
// stays the same Variable, with its requires_grad.
// Throws std::invalid_argument unless sizes and dtype agree.
void assign_data(const at::Tensor& variable, const at::Tensor& data);

}  // namespace fsdp
