#include <base/torch.h>
#include <c10/cuda/CUDAFunctions.h>
#include <comm/collective_error.h>
#include <comm/ledger.h>
#include <comm/rendezvous.h>
#include <cuda/nccl_transport.h>
#include <memory/live_bytes.h>
#include <memory/storage.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <exception>
#include <utility>

namespace fsdp {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

struct NcclGroup {
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl;
  std::shared_ptr<Ledger> ledger;
  int64_t under_way{};  // calls that were not waited for

  // To shut a group down is to wait for its calls and for the other ranks. When some will never
  // come because a rank has failed, all is left to the end of the process.
  ~NcclGroup() {
    if (under_way == 0 && std::uncaught_exceptions() == 0) {
      nccl->shutdown();
    } else {
      nccl.release();
    }
  }
};

// A call on NCCL's stream. That stream waits for what the current one has queued when the call is
// issued, and the current one waits for it in complete(): the CPU waits for neither. Until then the
// group holds the tensors; their memory is freed by the current stream, in whose order it is
// reused.
class NcclTransfer final : public Transfer {
 public:
  NcclTransfer(std::shared_ptr<NcclGroup> group, Collective collective)
      : group_(std::move(group)),
        collective_(std::move(collective)),
        reduced_(sum_of(collective_)) {}

  void start() override {
    if (!collective_.output.defined() || collective_.output.numel() == 0) return;
    ++group_->under_way;
    attempt([&] { work_ = issue(); });
  }

  void complete() override {
    if (work_) {
      attempt([&] { work_->wait(); });
      if (!reduced_.is_same(collective_.output)) collective_.output.copy_(reduced_);
      --group_->under_way;
    }
    group_->ledger->reach(collective_.call.sequence, Stage::waited_for);
  }

 private:
  Work issue() {
    c10d::ProcessGroupNCCL& nccl = *group_->nccl;
    std::vector<at::Tensor> tensors{collective_.output};
    switch (collective_.call.operation) {
      case Operation::all_gather: {
        at::Tensor input = gather_input();
        return nccl._allgather_base(collective_.output, input);
      }
      case Operation::reduce_scatter:
        return nccl._reduce_scatter_base(reduced_, collective_.input);  // a sum
      case Operation::all_reduce:
        return nccl.allreduce(tensors);
      case Operation::broadcast: {
        c10d::BroadcastOptions options;
        options.rootRank = group_->ledger->group().rank_of(collective_.call.root);
        return nccl.broadcast(tensors, options);
      }
      case Operation::barrier:
        break;  // the ledger's comparison is the barrier
    }
    return {};
  }

  // Where NCCL puts a sum: it knows no output of another dtype than the input.
  static at::Tensor sum_of(const Collective& collective) {
    const at::Tensor& output = collective.output;
    if (!output.defined() || output.scalar_type() == collective.input.scalar_type()) return output;
    const MemoryScope scope(MemoryClass::communication);
    return at::empty(output.sizes(), collective.input.options());
  }

  // In place NCCL takes an input that lies where its part of the output is, and no other.
  at::Tensor gather_input() const {
    const char* place = static_cast<const char*>(collective_.output.const_data_ptr()) +
                        static_cast<size_t>(group_->ledger->rank()) * collective_.input.nbytes();
    const bool misplaced = overlap(collective_.output, collective_.input) &&
                           collective_.input.const_data_ptr() != place;
    return misplaced ? collective_.input.clone() : collective_.input;
  }

  template <class Body>
  void attempt(const Body& body) const {
    try {
      body();
    } catch (const std::exception& error) {
      throw failed_in("nccl", group_->ledger->group(), group_->ledger->rank(), collective_.call,
                      error);
    }
  }

  std::shared_ptr<NcclGroup> group_;
  Collective collective_;
  at::Tensor reduced_;  // of a reduce-scatter: the output, or what is copied there
  Work work_;
};

class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(std::shared_ptr<NcclGroup> group) : group_(std::move(group)) {}

  std::unique_ptr<Transfer> begin(const Collective& collective) override {
    return std::make_unique<NcclTransfer>(group_, collective);
  }

  c10::Allocator* allocator() override { return c10::GetAllocator(c10::kCUDA); }

 private:
  std::shared_ptr<NcclGroup> group_;
};

}  // namespace

std::shared_ptr<Transport> make_nccl_transport(const RankContext& context,
                                               std::shared_ptr<Ledger> ledger,
                                               std::chrono::milliseconds timeout) {
  const Group group = ledger->group();
  const int rank = ledger->rank();
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  // When this time is over, NCCL's watchdog ends the process: after the ledger, which says why.
  options->timeout = 2 * timeout;
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(
      rendezvous_of(context, group, "bytes", timeout), rank, group.size, options);
  nccl->eagerConnectSingleDevice(at::Device(at::kCUDA, c10::cuda::current_device()));
  return std::make_shared<NcclTransport>(
      std::shared_ptr<NcclGroup>(new NcclGroup{std::move(nccl), std::move(ledger)}));
}

}  // namespace fsdp
