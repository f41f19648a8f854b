#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <planning/flop_counter.h>

#include <atomic>
#include <string_view>
#include <utility>

namespace fsdp {
namespace {

// Number of floating-point operations of the operators that this process has called while at least
// one FlopCounter lived. It is a global variable because PyTorch's callback is a plain function.
std::atomic<int64_t> counted = 0;

int64_t product(const at::Tensor& a, const at::Tensor& b) {
  return 2 * a.numel() * b.size(-1);
}

// q [batch, heads, queries, width], k [batch, heads, keys, width]
int64_t attention_product(const at::Tensor& q, const at::Tensor& k) {
  return 2 * q.numel() * k.size(-2);
}

int64_t flops_of(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  const auto tensor = [&](size_t i) { return call.inputs()[i].toTensor(); };
  if (name == "aten::mm" || name == "aten::bmm") return product(tensor(0), tensor(1));
  if (name == "aten::addmm" || name == "aten::baddbmm") return product(tensor(1), tensor(2));
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu")
    return 2 * attention_product(tensor(0), tensor(1));
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward")
    return 5 * attention_product(tensor(1), tensor(2));
  return 0;
}

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
  counted += flops_of(call);
  return nullptr;
}

// PyTorch calls count() for each operator while any FlopCounter exists: the first FlopCounter
// registers the callback, and the last one removes it. `counters`: how many FlopCounters exist.
int counters = 0;
at::CallbackHandle callback;

}  // namespace

FlopCounter::FlopCounter() : taken_(counted) {
  if (counters++ == 0)
    callback = at::addGlobalCallback(
        at::RecordFunctionCallback(count).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

FlopCounter::~FlopCounter() {
  if (--counters == 0) at::removeCallback(callback);
}

int64_t FlopCounter::take() {
  const int64_t now = counted;
  return now - std::exchange(taken_, now);
}

}  // namespace fsdp
