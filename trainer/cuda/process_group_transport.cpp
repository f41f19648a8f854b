#include <comm/collective_error.h>
#include <comm/ledger.h>
#include <cuda/process_group_transport.h>
#include <memory/live_bytes.h>
#include <memory/storage.h>

#include <exception>
#include <utility>

namespace fsdp {
namespace {

struct Calls {
  ProcessGroup group;
  std::shared_ptr<Ledger> ledger;
  int64_t under_way{};  // number of calls that were issued and not waited for yet

  ~Calls() {
    if (under_way == 0 && std::uncaught_exceptions() == 0) {
      group.backend->shutdown();
    } else {
      group.backend.release();
    }
  }
};

class ProcessGroupTransfer final : public Transfer {
 public:
  ProcessGroupTransfer(std::shared_ptr<Calls> calls, Collective collective)
      : calls_(std::move(calls)),
        collective_(std::move(collective)),
        reduced_(sum_of(collective_)) {}

  void start() override {
    if (!collective_.output.defined() || collective_.output.numel() == 0) return;
    ++calls_->under_way;
    attempt([&] { work_ = issue(*calls_->group.backend); });
  }

  void complete() override {
    if (work_) {
      attempt([&] { work_->wait(); });
      if (!reduced_.is_same(collective_.output)) collective_.output.copy_(reduced_);
      --calls_->under_way;
    }
    calls_->ledger->advance(collective_.call.sequence, Stage::waited_for);
  }

 private:
  c10::intrusive_ptr<c10d::Work> issue(c10d::Backend& backend) {
    std::vector<at::Tensor> tensors{collective_.output};
    switch (collective_.call.operation) {
      case Operation::all_gather: {
        at::Tensor input = gather_input();
        return backend._allgather_base(collective_.output, input);
      }
      case Operation::reduce_scatter:
        // c10d's default reduction is the sum.
        return backend._reduce_scatter_base(reduced_, collective_.input);
      case Operation::all_reduce:
        return backend.allreduce(tensors);
      case Operation::broadcast: {
        c10d::BroadcastOptions options;
        options.rootRank = calls_->ledger->group().rank_of(collective_.call.root);
        return backend.broadcast(tensors, options);
      }
      case Operation::barrier:
        // A barrier issues no call of the process group. wait() compares the calls of all ranks in
        // the ledger before it calls complete(), and this comparison is the barrier.
        break;
    }
    return {};
  }

  // Returns the tensor that the process group writes a sum to. This is the output of the collective
  // or, if input and output have different dtypes, a temporary tensor with the dtype of the input,
  // because the process group supports only equal dtypes.
  static at::Tensor sum_of(const Collective& collective) {
    const at::Tensor& output = collective.output;
    if (!output.defined() || output.scalar_type() == collective.input.scalar_type()) return output;
    const MemoryScope scope(MemoryClass::communication);
    return at::empty(output.sizes(), collective.input.options());
  }

  // Returns the input to pass to an all-gather of the process group. NCCL accepts an input that
  // lies inside the output only at the place of this rank's part, so an input elsewhere in the
  // output is copied.
  at::Tensor gather_input() const {
    const char* place = static_cast<const char*>(collective_.output.const_data_ptr()) +
                        static_cast<size_t>(calls_->ledger->rank()) * collective_.input.nbytes();
    const bool misplaced = overlap(collective_.output, collective_.input) &&
                           collective_.input.const_data_ptr() != place;
    return misplaced ? collective_.input.clone() : collective_.input;
  }

  template <class Body>
  void attempt(const Body& body) const {
    try {
      body();
    } catch (const std::exception& error) {
      throw library_error(calls_->group.library.c_str(), calls_->ledger->group(),
                          calls_->ledger->rank(), collective_.call, error);
    }
  }

  std::shared_ptr<Calls> calls_;
  Collective collective_;
  // The tensor that sum_of(collective_) has returned. If the collective is a reduce-scatter, the
  // process group writes the sum to this tensor.
  at::Tensor reduced_;
  c10::intrusive_ptr<c10d::Work> work_;
};

class ProcessGroupTransport final : public Transport {
 public:
  explicit ProcessGroupTransport(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}

  std::unique_ptr<Transfer> begin(const Collective& collective) override {
    return std::make_unique<ProcessGroupTransfer>(calls_, collective);
  }

  c10::Allocator* allocator() override { return c10::GetAllocator(calls_->group.device); }

 private:
  std::shared_ptr<Calls> calls_;
};

}  // namespace

std::shared_ptr<Transport> make_process_group_transport(ProcessGroup group,
                                                        std::shared_ptr<Ledger> ledger) {
  return std::make_shared<ProcessGroupTransport>(
      std::shared_ptr<Calls>(new Calls{std::move(group), std::move(ledger)}));
}

}  // namespace fsdp
