#include <ATen/EmptyTensor.h>
#include <base/torch.h>
#include <memory/live_bytes.h>
#include <transports/backends.h>

#include <utility>

namespace fsdp {
namespace {

// A transfer of tensors on a device. It copies them to tensors on the host, which the inner
// transport transfers, and copies the output back. The CPU waits for the device in each copy.
class StagedTransfer final : public Transfer {
 public:
  StagedTransfer(Transport& inner, const Collective& call, c10::Allocator* allocator)
      : output_(call.output) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Collective staged = call;
    if (call.output.defined()) {
      staged.input = host_tensor(call.input, allocator).copy_(call.input);
      const bool in_place = call.output.is_same(call.input);
      staged.output = in_place ? staged.input : host_tensor(call.output, allocator);
    }
    host_output_ = staged.output;
    inner_ = inner.begin(staged);
  }

  uint64_t address() const override { return inner_->address(); }
  void start() override { inner_->start(); }

  void complete() override {
    inner_->complete();
    if (!output_.defined()) return;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    output_.copy_(host_output_);
  }

  std::optional<std::pair<int64_t, int64_t>> moved() const override { return inner_->moved(); }

 private:
  static at::Tensor host_tensor(const at::Tensor& like, c10::Allocator* allocator) {
    const MemoryScope scope(MemoryClass::communication);
    return at::detail::empty_generic(like.sizes(), allocator,
                                     c10::DispatchKeySet(c10::DispatchKey::CPU), like.scalar_type(),
                                     std::nullopt);
  }

  at::Tensor output_;
  at::Tensor host_output_;  // the output on the host; complete() copies it to output_
  std::unique_ptr<Transfer> inner_;
};

class StagedTransport final : public Transport {
 public:
  StagedTransport(std::shared_ptr<Transport> inner, c10::DeviceType device, c10::Allocator* staging)
      : inner_(std::move(inner)), device_(device), staging_(staging) {}

  std::unique_ptr<Transfer> begin(const Collective& call) override {
    return std::make_unique<StagedTransfer>(*inner_, call, staging_);
  }

  c10::Allocator* allocator() override { return c10::GetAllocator(device_); }

 private:
  std::shared_ptr<Transport> inner_;
  c10::DeviceType device_;
  c10::Allocator* staging_;
};

}  // namespace

std::shared_ptr<Transport> make_staged_transport(std::shared_ptr<Transport> inner,
                                                 c10::DeviceType device, c10::Allocator* staging) {
  return std::make_shared<StagedTransport>(std::move(inner), device, staging);
}

}  // namespace fsdp
