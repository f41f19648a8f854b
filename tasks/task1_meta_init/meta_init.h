#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

struct Tape;  // what was recorded

// A construction that was recorded instead of done, for models larger than one rank's memory.
//
//   std::shared_ptr<Net> net;
//   DeferredInit init([&] { net = std::make_shared<Net>(); });   // parameters of 0 bytes
//   at::Tensor weight = init.materialize_tensor(net->fc->weight);  // this one, with its values
//
// What is materialized is bitwise what eager construction would have made, in whatever order.
class DeferredInit {
 public:
  // Runs `construct` once. Tensors it makes are on the meta device, without memory; every operation
  // on them is recorded. The generators move as in eager construction: a random operation draws at
  // once, into scratch memory (one tensor), and its generator's state before it is kept (5,056
  // bytes). An operation that the meta device cannot do (item(), nonzero()) is done at once too, on
  // materialized copies. Tensors made before stay as they are; what a recorded operation reads of
  // them is copied.
  // What `construct` throws goes on, and nothing stays recorded. Throws if called inside itself, if
  // an operation asks for another device than the CPU, and if memory is used through a pointer.
  explicit DeferredInit(const std::function<void()>& construct);
  ~DeferredInit();

  // The recorded operations, as aten::name, in order. Views are not among them.
  std::vector<std::string> operations() const;

  // Replays what `tensor`'s values depend on, and nothing else. Returns a new CPU tensor of its
  // sizes and strides; `tensor` and the generators stay as they are. Alive at most: this tensor and
  // those its values are computed from. A tensor that was not recorded is returned itself.
  at::Tensor materialize_tensor(const at::Tensor& tensor) const;

  // Materializes every recorded parameter and buffer of `module`, in place. They stay the same
  // Variables, and what shared memory in eager construction shares it. A tensor that `module` holds
  // without having registered it stays on the meta device.
  void materialize_module(torch::nn::Module& module) const;

 private:
  std::unique_ptr<Tape> tape_;
};

// Runs `construct` once with its tensors on the meta device, recording nothing and drawing nothing:
// for the names and sizes of a model alone. Throws as DeferredInit does.
void construct_on_meta(const std::function<void()>& construct);

// Makes `variable` stand on `data`'s memory: set_data() that may also change the device. The
// Variable stays the same one, with its requires_grad, for all who hold it. Throws unless sizes and
// dtype agree.
void assign_data(const at::Tensor& variable, const at::Tensor& data);

}  // namespace fsdp
