#pragma once

#include <nn/operator_call.h>

// Helpers for the construction of modules whose tensors have no memory (deferred initialization).
namespace fsdp {

// Calls `construct`. If LibTorch throws because a tensor has no memory, throws std::runtime_error
// instead, whose text names the cause: the constructor used the memory through a pointer. Other
// exceptions pass through.
void call_constructor(const std::function<void()>& construct);

// Throws std::runtime_error, which names the operator and the device, if this call of `op` asks for
// a device other than the CPU and the meta device.
void refuse_other_devices(const OperatorHandle& op, const Values& arguments);

// While this object lives, `generator` continues from `state`; the destructor restores the
// generator's earlier state. Does nothing if the generator is undefined.
class GeneratorStateScope {
 public:
  GeneratorStateScope(at::Generator generator, const at::Tensor& state);
  ~GeneratorStateScope();
  GeneratorStateScope(const GeneratorStateScope&) = delete;  // a copy would restore the state twice
  GeneratorStateScope& operator=(const GeneratorStateScope&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;  // [5056] bytes: state of the CPU generator
};

}  // namespace fsdp
