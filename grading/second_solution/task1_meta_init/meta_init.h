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
// Materialized values are, to the bit, those of eager construction, in whatever order one asks.
class DeferredInit {
 public:
  // Runs `construct` once. Its tensors are made on the meta device, without memory, and every
  // operation on them is recorded. (torch::tensor(vector) still makes a CPU tensor.) Generators
  // move as in eager construction: a random operation draws at once, into scratch memory (one
  // tensor), and the state of its generator from before is kept (5,056 bytes). An operation that
  // the meta device cannot do (item(), nonzero()) is performed at once too, on materialized copies.
  // Tensors made before are not redirected; a recorded operation that reads one keeps a copy.
  // Passes on what `construct` throws, and ends the recording. Throws if called inside itself, if
  // an operation asks for a device other than the CPU, and if memory is used through a pointer.
  explicit DeferredInit(const std::function<void()>& construct);
  ~DeferredInit();
  DeferredInit(const DeferredInit&) = delete;  // one owner of what was recorded
  DeferredInit& operator=(const DeferredInit&) = delete;

  // The recorded operations, as aten::name, in order. Views are not recorded.
  [[nodiscard]] std::vector<std::string> operations() const;

  // Replays what the values of `tensor` depend on, and nothing else. Returns a new CPU tensor of
  // the same sizes and strides; `tensor` and the generators stay unchanged. At most this tensor and
  // those it is computed from are alive. Returns a tensor that was not recorded unchanged.
  [[nodiscard]] at::Tensor materialize_tensor(const at::Tensor& tensor) const;

  // Materializes the recorded parameters and buffers of `module` in place, and replays nothing that
  // they do not depend on. They stay the same Variables. What shares memory in eager construction
  // shares it, also with what an earlier call materialized and a module still holds: this object
  // keeps none of it alive. A tensor that `module` has not registered stays on the meta device.
  void materialize_module(torch::nn::Module& module) const;

 private:
  std::unique_ptr<Tape> tape_;
};

// Runs `construct` once with its tensors on the meta device, for the names and sizes of a model.
// Records and draws nothing: the generators stay unmoved. Throws as DeferredInit does.
void construct_on_meta(const std::function<void()>& construct);

// Puts `variable` on the memory of `data`, as set_data() does, even on another device. It stays the
// same Variable, with its requires_grad. Throws std::invalid_argument unless sizes and dtype agree.
void assign_data(const at::Tensor& variable, const at::Tensor& data);

}  // namespace fsdp
