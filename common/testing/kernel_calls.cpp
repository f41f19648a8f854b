#include <ATen/record_function.h>
#include <testing/kernel_calls.h>

namespace fsdp {
namespace {

// A callback is a plain function.
thread_local std::string counted;
thread_local int calls = 0;

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
  calls += function.name() == counted;
  return nullptr;
}

class Callback {
 public:
  Callback() = default;
  ~Callback() { at::removeCallback(handle_); }
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;

 private:
  const at::CallbackHandle handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(count));
};

}  // namespace

int kernel_calls(const std::string& name, const std::function<void()>& body) {
  counted = name;
  calls = 0;
  const Callback callback;
  body();
  return calls;
}

}  // namespace fsdp
