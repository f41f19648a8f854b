#include <nn/construction.h>

#include <stdexcept>
#include <string_view>

namespace fsdp {

void call_constructor(const std::function<void()>& construct) {
  try {
    construct();
  } catch (const c10::Error& error) {
    // If the constructor uses a deferred tensor's memory through a pointer, LibTorch's own message
    // says only that the tensor's data is not allocated, and gives advice on custom kernels and
    // Caffe2. So call_constructor() throws a message that names the pointer instead.
    if (std::string_view(error.what()).find("data is not allocated") == std::string_view::npos)
      throw;
    throw std::runtime_error(
        "DeferredInit: the constructor uses the memory of a deferred tensor through a pointer "
        "(data_ptr, accessor); use operations, or do it when the tensor is materialized");
  }
}

void refuse_other_devices(const OperatorHandle& op, const Values& arguments) {
  const c10::Device device = device_of(op, arguments).value_or(at::kCPU);
  if (device.is_cpu() || device.is_meta()) return;
  throw std::runtime_error(c10::str("DeferredInit: ", name_of(op), " asks for the device ", device,
                                    "; construct on the CPU, then move the materialized module"));
}

GeneratorStateScope::GeneratorStateScope(at::Generator generator, const at::Tensor& state)
    : generator_(std::move(generator)) {
  if (!generator_.defined()) return;
  before_ = generator_.get_state();
  generator_.set_state(state);
}

GeneratorStateScope::~GeneratorStateScope() {
  if (generator_.defined()) generator_.set_state(before_);
}

}  // namespace fsdp
