#pragma once

#include <nn/operator_call.h>

// What a construction needs whose tensors have no memory.
namespace fsdp {

// Calls `construct`. If LibTorch says that a tensor's memory is not there, throws
// std::runtime_error instead, which says what the constructor did: it used the memory through a
// pointer. Other exceptions pass through.
void call_constructor(const std::function<void()>& construct);

// Throws std::runtime_error, which names the operation and the device, if the call asks for a
// device other than the CPU and the meta device.
void refuse_other_devices(const OperatorHandle& op, const Values& arguments);

// While it lives, the generator is in `state`; afterwards it is back where it was before the scope.
// Does nothing to an undefined generator.
class GeneratorStateScope {
 public:
  GeneratorStateScope(at::Generator generator, const at::Tensor& state);
  ~GeneratorStateScope();
  GeneratorStateScope(const GeneratorStateScope&) = delete;  // it puts the generator back once
  GeneratorStateScope& operator=(const GeneratorStateScope&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;  // [5056] bytes
};

}  // namespace fsdp
