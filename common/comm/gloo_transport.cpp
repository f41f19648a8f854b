#include <comm/rank_order_sum.h>
#include <comm/transport.h>
#include <memory/live_bytes.h>
#include <torch/torch.h>

// The declarations of gloo it includes come from gloo_declarations/.
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstring>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

// The group and how many of its calls are under way.
struct Group {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::shared_ptr<Ledger> ledger;
  int rank;
  int world_size;
  int open{};

  // To destroy a group is to wait for its calls. When some will never end because a rank has
  // failed, it is left to the end of the process.
  ~Group() {
    if (open > 0) gloo.release();
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
  GlooTransfer(std::shared_ptr<Group> group, Collective call)
      : group_(std::move(group)), call_(std::move(call)) {
    ++group_->open;
  }

  void complete() override {
    if (call_.output.defined() && call_.output.numel() > 0) {
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
    --group_->open;
    group_->ledger->advance(call_.sequence);
  }

 protected:
  // Waits for what the constructor issued. Not called for empty tensors, which nothing is issued
  // for.
  virtual void finish() { work_->wait(); }
  bool empty() const { return call_.output.numel() == 0; }

  std::shared_ptr<Group> group_;
  Collective call_;
  Work work_;
};

class AllGather final : public GlooTransfer {
 public:
  AllGather(std::shared_ptr<Group> group, const Collective& call)
      : GlooTransfer(std::move(group), call),
        copies_(scratch(call.output.numel(), call.output.scalar_type())) {
    if (empty()) return;
    repeat(*group_, copies_, call.input);
    work_ = all_to_all(*group_, call.output, copies_);
  }

 private:
  at::Tensor copies_;  // [W n], the input for every rank, owned
};

// An exchange of parts and a sum here: gloo's own reduce-scatter sums in an order of its own.
class ReduceScatter final : public GlooTransfer {
 public:
  ReduceScatter(std::shared_ptr<Group> group, const Collective& call)
      : GlooTransfer(std::move(group), call),
        received_(scratch(call.input.numel(), call.input.scalar_type())) {
    if (!empty()) work_ = all_to_all(*group_, received_, call.input);
  }

 private:
  void finish() override {
    work_->wait();
    sum_parts(*group_, call_.output, received_);
  }

  at::Tensor received_;  // [W n], this rank's part of every rank's input, owned
};

class AllReduce final : public GlooTransfer {
 public:
  AllReduce(std::shared_ptr<Group> group, const Collective& call)
      : GlooTransfer(std::move(group), call) {
    if (empty()) return;
    int64_t world_size = group_->world_size;
    int64_t part = (call.input.numel() + world_size - 1) / world_size;
    padded_ = scratch(part * world_size, call.input.scalar_type());
    received_ = scratch(part * world_size, call.input.scalar_type());
    std::memcpy(padded_.data_ptr(), call.input.const_data_ptr(), call.input.nbytes());
    size_t rest = padded_.nbytes() - call.input.nbytes();
    std::memset(static_cast<char*>(padded_.data_ptr()) + call.input.nbytes(), 0, rest);
    work_ = all_to_all(*group_, received_, padded_);
  }

 private:
  void finish() override {
    work_->wait();
    int64_t part = padded_.numel() / group_->world_size;
    at::Tensor sum = scratch(part, padded_.scalar_type());
    sum_parts(*group_, sum, received_);
    repeat(*group_, received_, sum);
    all_to_all(*group_, padded_, received_)->wait();
    std::memcpy(call_.output.mutable_data_ptr(), padded_.const_data_ptr(), call_.output.nbytes());
  }

  at::Tensor padded_;    // [W part], owned: the input and zeros, then the sums
  at::Tensor received_;  // [W part], this rank's part of every rank's input, then its sum for every
                         // rank, owned
};

class Broadcast final : public GlooTransfer {
 public:
  Broadcast(std::shared_ptr<Group> group, const Collective& call)
      : GlooTransfer(std::move(group), call) {
    if (empty()) return;
    std::vector<at::Tensor> tensors{bytes_of(call.output)};
    c10d::BroadcastOptions options;
    options.rootRank = call.root;
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
