#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>
#include <testing/kernel_calls.h>

namespace fsdp {
namespace {

// `kernel` and `calls` are variables of the thread, because PyTorch's callback is a plain function,
// which cannot capture values.
thread_local std::string kernel;
thread_local int calls = 0;

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
  calls += function.name() == kernel;
  return nullptr;
}

}  // namespace

int kernel_calls(const std::string& name, const std::function<void()>& body) {
  kernel = name;
  calls = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(count));
  const auto remove = c10::make_scope_exit([&] { at::removeCallback(handle); });
  body();
  return calls;
}

}  // namespace fsdp
