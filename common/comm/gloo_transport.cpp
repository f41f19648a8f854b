#include <comm/rank_order_sum.h>
#include <comm/transport.h>
#include <memory/live_bytes.h>
#include <torch/torch.h>

// The declarations of gloo it includes come from gloo_declarations/.
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

// The group and what its threads read and write, by the sequence of the calls under way.
struct Group {
  using Tensors = std::map<uint64_t, std::vector<at::Tensor>>;

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::shared_ptr<Ledger> ledger;
  int rank;
  int world_size;
  Tensors in_use{};

  // To destroy a group is to wait for its calls. When some will never end because a rank has
  // failed, all is left to the end of the process.
  ~Group() {
    if (in_use.empty()) return;
    gloo.release();
    new Tensors(std::move(in_use));  // NOLINT: never freed
  }
};

// The bytes of a tensor: gloo moves them without knowing the dtype, and its writes, like those of
// the other transports, raise no version counter.
at::Tensor bytes_of(const at::Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return at::from_blob(tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())}, at::kByte);
}

at::Tensor scratch(int64_t numel, at::ScalarType dtype) {
  MemoryScope scope(MemoryClass::communication);
  return at::empty({numel}, dtype);
}

at::Tensor scratch_like(const at::Tensor& tensor) {
  return scratch(tensor.numel(), tensor.scalar_type());
}

Work all_to_all(Group& group, const at::Tensor& output, const at::Tensor& input) {
  at::Tensor to = bytes_of(output), from = bytes_of(input);
  std::vector<int64_t> equal_parts;
  return group.gloo->alltoall_base(to, from, equal_parts, equal_parts);
}

// copies [W n] <- W times `part` [n]: an exchange of the copies is an all-gather. gloo's own
// allocates a buffer as large and frees it at a time of its own, so that bytes could not be
// predicted.
void repeat(const Group& group, const at::Tensor& copies, const at::Tensor& part) {
  auto* data = static_cast<char*>(copies.data_ptr());
  for (int rank = 0; rank < group.world_size; ++rank) {
    std::memcpy(data + rank * part.nbytes(), part.const_data_ptr(), part.nbytes());
  }
}

// output [n] <- the sum of the W parts of `received` [W n].
void sum_parts(const Group& group, const at::Tensor& output, const at::Tensor& received) {
  std::vector<const void*> parts;
  auto* data = static_cast<const char*>(received.const_data_ptr());
  for (int rank = 0; rank < group.world_size; ++rank) {
    parts.push_back(data + rank * output.nbytes());
  }
  sum_in_rank_order(output.mutable_data_ptr(), parts, output.numel(), output.scalar_type());
}

class GlooTransfer : public Transfer {
 public:
  GlooTransfer(std::shared_ptr<Group> group, Collective call, std::vector<at::Tensor> buffers = {})
      : group_(std::move(group)), call_(std::move(call)), buffers_(std::move(buffers)) {}

  void start() final {
    if (empty()) return;
    auto& in_use = group_->in_use[call_.sequence];
    in_use = buffers_;
    in_use.insert(in_use.end(), {call_.output, call_.input});
    issue();
  }

  void complete() final {
    if (!empty()) {
      try {
        finish();
      } catch (const c10::Error& error) {
        throw CollectiveError("rank " + std::to_string(group_->rank) + ": " +
                              to_string(call_.operation) + " (collective #" +
                              std::to_string(call_.sequence) +
                              ") failed in gloo: " + error.what_without_backtrace());
      } catch (const CollectiveError&) {
        throw;
      } catch (const std::exception& error) {
        throw CollectiveError("rank " + std::to_string(group_->rank) + ": " +
                              to_string(call_.operation) + " (collective #" +
                              std::to_string(call_.sequence) + ") failed in gloo: " + error.what());
      }
    }
    group_->in_use.erase(call_.sequence);
    group_->ledger->advance(call_.sequence);
  }

 protected:
  // Neither is called for empty tensors.
  virtual void issue() {}
  virtual void finish() { work_->wait(); }

  std::shared_ptr<Group> group_;
  Collective call_;
  std::vector<at::Tensor> buffers_;  // owned
  Work work_;

 private:
  bool empty() const { return !call_.output.defined() || call_.output.numel() == 0; }
};

class AllGather final : public GlooTransfer {
 public:
  AllGather(std::shared_ptr<Group> group, const Collective& call)
      : GlooTransfer(std::move(group), call, {scratch_like(call.output)}) {}

 private:
  void issue() override {
    const at::Tensor& copies = buffers_[0];  // [W n], the input for every rank
    repeat(*group_, copies, call_.input);
    work_ = all_to_all(*group_, call_.output, copies);
  }
};

// An exchange of parts and a sum here: gloo's own reduce-scatter sums in an order of its own.
class ReduceScatter final : public GlooTransfer {
 public:
  ReduceScatter(std::shared_ptr<Group> group, const Collective& call)
      : GlooTransfer(std::move(group), call, {scratch_like(call.input)}) {}

 private:
  void issue() override { work_ = all_to_all(*group_, buffers_[0], call_.input); }

  void finish() override {
    work_->wait();
    sum_parts(*group_, call_.output, buffers_[0]);  // [W n], this rank's part of every rank's input
  }
};

class AllReduce final : public GlooTransfer {
 public:
  AllReduce(std::shared_ptr<Group> group, const Collective& call)
      : GlooTransfer(group, call,
                     {scratch(padded_numel(*group, call), call.input.scalar_type()),
                      scratch(padded_numel(*group, call), call.input.scalar_type())}),
        padded_(buffers_[0]),
        received_(buffers_[1]) {}

 private:
  static int64_t padded_numel(const Group& group, const Collective& call) {
    const int64_t part = (call.input.numel() + group.world_size - 1) / group.world_size;
    return part * group.world_size;
  }

  void issue() override {
    std::memcpy(padded_.data_ptr(), call_.input.const_data_ptr(), call_.input.nbytes());
    const size_t rest = padded_.nbytes() - call_.input.nbytes();
    std::memset(static_cast<char*>(padded_.data_ptr()) + call_.input.nbytes(), 0, rest);
    work_ = all_to_all(*group_, received_, padded_);
  }

  void finish() override {
    work_->wait();
    const at::Tensor sum = scratch(padded_.numel() / group_->world_size, padded_.scalar_type());
    sum_parts(*group_, sum, received_);
    repeat(*group_, received_, sum);
    all_to_all(*group_, padded_, received_)->wait();
    std::memcpy(call_.output.mutable_data_ptr(), padded_.const_data_ptr(), call_.output.nbytes());
  }

  at::Tensor padded_;    // [W part]: the input and zeros, then the sums
  at::Tensor received_;  // [W part], this rank's part of every rank's input, then its sum for every
                         // rank
};

class Broadcast final : public GlooTransfer {
 public:
  using GlooTransfer::GlooTransfer;

 private:
  void issue() override {
    std::vector<at::Tensor> tensors{bytes_of(call_.output)};
    c10d::BroadcastOptions options;
    options.rootRank = call_.root;
    work_ = group_->gloo->broadcast(tensors, options);
  }
};

// The ledger's comparison is the barrier.
class Barrier final : public GlooTransfer {
 public:
  using GlooTransfer::GlooTransfer;
};

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  std::unique_ptr<Transfer> begin(const Collective& call) override {
    switch (call.operation) {
      case Operation::all_gather:
        return std::make_unique<AllGather>(group_, call);
      case Operation::reduce_scatter:
        return std::make_unique<ReduceScatter>(group_, call);
      case Operation::all_reduce:
        return std::make_unique<AllReduce>(group_, call);
      case Operation::broadcast:
        return std::make_unique<Broadcast>(group_, call);
      case Operation::barrier:
        return std::make_unique<Barrier>(group_, call);
    }
    throw std::logic_error("unknown operation");
  }

  c10::Allocator* allocator() override { return c10::GetAllocator(c10::kCPU); }

 private:
  std::shared_ptr<Group> group_;
};

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const RankContext& context,
                                               std::shared_ptr<Ledger> ledger,
                                               std::chrono::milliseconds timeout) {
  auto store =
      c10::make_intrusive<c10d::FileStore>(context.shared->rendezvous_path(), context.world_size);
  store->setTimeout(timeout);
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  options->threads = 2;
  auto gloo =
      c10::make_intrusive<c10d::ProcessGroupGloo>(store, context.rank, context.world_size, options);
  return std::make_shared<GlooTransport>(std::shared_ptr<Group>(
      new Group{std::move(gloo), std::move(ledger), context.rank, context.world_size}));
}

}  // namespace fsdp
