#include <base/torch.h>
#include <planning/flops.h>

#include <string_view>
#include <utility>

namespace fsdp {
namespace {

thread_local int64_t counted = 0;

int64_t product(const at::Tensor& a, const at::Tensor& b) {
  return 2 * a.numel() * b.size(-1);
}

// q [batch, heads, queries, width], k [batch, heads, keys, width]
int64_t attention_product(const at::Tensor& q, const at::Tensor& k) {
  return 2 * q.numel() * k.size(-2);
}

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  const auto inputs = call.inputs();
  const auto tensor = [&](size_t i) { return inputs[i].toTensor(); };
  if (name == "aten::mm" || name == "aten::bmm") counted += product(tensor(0), tensor(1));
  if (name == "aten::addmm" || name == "aten::baddbmm") counted += product(tensor(1), tensor(2));
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu")
    counted += 2 * attention_product(tensor(0), tensor(1));
  if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward")
    counted += 5 * attention_product(tensor(1), tensor(2));
  return nullptr;
}

}  // namespace

FlopCounter::FlopCounter()
    : handle_(
          at::addThreadLocalCallback(at::RecordFunctionCallback(&count).needsInputs(true).scopes(
              {at::RecordScope::FUNCTION}))) {
  counted = 0;
}

FlopCounter::~FlopCounter() {
  at::removeCallback(handle_);
}

int64_t FlopCounter::take() {
  return std::exchange(counted, 0);
}

}  // namespace fsdp
