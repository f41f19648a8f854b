#pragma once

#include <base/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

struct Tape;  // the recorded operations

// Deferred initialization: records how a model is constructed. So a rank can construct a model that
// is larger than the memory of this rank.
//   std::shared_ptr<Net> net;
//   DeferredInit init([&] { net = std::make_shared<Net>(); });     // parameters of 0 bytes
//   at::Tensor weight = init.materialize_tensor(net->fc->weight);  // this one, with its values
// In whatever order the caller materializes the tensors, their values are equal, to the bit, to
// those of eager construction (the usual construction, in which every tensor has memory).
class DeferredInit {
 public:
  // Runs `construct` once and records its operations, but not those of other threads. A tensor
  // "made before" is a tensor made before this call.
  // - Tensors are made on the meta device, without memory, and every operation on them is recorded.
  //   (torch::tensor(vector) still makes a CPU tensor.)
  // - Generators move as in eager construction: a random operation runs at once on scratch memory
  //   (one tensor). The record keeps the state that its generator had before (5,056 bytes).
  // - Some other operations run at once too, on materialized copies of their arguments: if the meta
  //   device cannot run them (item(), nonzero()), if they make a sparse tensor, or if they write to
  //   a tensor made before.
  // - Tensors made before do not move to the meta device. If a recorded operation reads one, the
  //   record keeps a copy of it.
  // - If an operation on a recorded tensor returns a view of a tensor made before
  //   (before.view_as(recorded)), the record has a view of the copy.
  // Throws:
  // - what `construct` throws, after it has ended the recording;
  // - an error if this thread is recording already, if an operation asks for a device other than
  //   the CPU, or if memory of a recorded tensor is used through a pointer.
  explicit DeferredInit(const std::function<void()>& construct);
  ~DeferredInit();
  DeferredInit(const DeferredInit&) = delete;  // one owner of what was recorded
  DeferredInit& operator=(const DeferredInit&) = delete;

  // Returns the recorded operations, as aten::name, in order. Views are not recorded.
  [[nodiscard]] std::vector<std::string> operations() const;

  // Returns the values of `tensor`: a new CPU tensor of the same sizes and strides.
  // - Replays the operations on which the values of `tensor` depend, and no others.
  // - At any time, at most this tensor and the tensors from which it is computed are alive.
  // - `tensor` and the generators stay unchanged.
  // - If `tensor` was not recorded, returns `tensor` itself.
  [[nodiscard]] at::Tensor materialize_tensor(const at::Tensor& tensor) const;

  // Materializes the recorded parameters and buffers of `module` in place.
  // - Replays only the operations on which they depend.
  // - Parameters and buffers stay the same Variables.
  // - Tensors that share memory in eager construction share it here too, even if an earlier call
  //   materialized one of them and a module still holds it. This object does not keep that memory
  //   alive.
  // - A tensor that `module` has not registered stays on the meta device.
  void materialize_module(torch::nn::Module& module) const;

 private:
  std::unique_ptr<Tape> tape_;
};

// Runs `construct` once with its tensors on the meta device, for the names and sizes of a model.
// - A random operation moves no generator.
// - An operation that the meta device cannot run (randperm()) runs on the CPU, on tensors of the
//   right sizes. It moves no generator either.
// - If such an operation writes to a tensor made before this call, the written values mean nothing.
// Throws what DeferredInit() throws.
void construct_on_meta(const std::function<void()>& construct);

// Puts `variable` on the memory of `data`, as set_data() does, even on another device. `variable`
// stays the same Variable, with its requires_grad.
// Throws std::invalid_argument if the sizes or the dtypes of the two differ.
void assign_data(const at::Tensor& variable, const at::Tensor& data);

}  // namespace fsdp
