#include <base/torch.h>
#include <comm/backends.h>
#include <comm/gloo_group.h>
#include <comm/tree_sum.h>
#include <memory/live_bytes.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

using GlooWork = c10::intrusive_ptr<c10d::Work>;

// The group and what its threads read and write, by the sequence of the calls under way.
struct GlooGroup {
  using Tensors = std::map<uint64_t, std::vector<at::Tensor>>;

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::shared_ptr<Ledger> ledger;
  Tensors in_use{};

  int size() const { return ledger->group().size; }

  // To destroy a group is to wait for its calls. When some will never end because a rank has
  // failed, all is left to the end of the process.
  ~GlooGroup() {
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

GlooWork all_to_all(GlooGroup& group, const at::Tensor& output, const at::Tensor& input) {
  at::Tensor to = bytes_of(output), from = bytes_of(input);
  std::vector<int64_t> equal_parts;
  return group.gloo->alltoall_base(to, from, equal_parts, equal_parts);
}

// copies [W n] <- W times `part` [n]: an exchange of the copies is an all-gather. gloo's own
// allocates a buffer as large and frees it at a time of its own, so that bytes could not be
// predicted.
void repeat(const GlooGroup& group, const at::Tensor& copies, const at::Tensor& part) {
  auto* data = static_cast<char*>(copies.data_ptr());
  for (int rank = 0; rank < group.size(); ++rank) {
    std::memcpy(data + rank * part.nbytes(), part.const_data_ptr(), part.nbytes());
  }
}

// output [n] <- the sum of the W parts of `received` [W n], which may be of a narrower dtype.
void sum_parts(const GlooGroup& group, const at::Tensor& output, const at::Tensor& received) {
  std::vector<const void*> parts;
  auto* data = static_cast<const char*>(received.const_data_ptr());
  for (int rank = 0; rank < group.size(); ++rank) {
    parts.push_back(data + rank * (received.nbytes() / group.size()));
  }
  sum_as_tree(output.mutable_data_ptr(), output.scalar_type(), parts, output.numel(),
              received.scalar_type());
}

class GlooTransfer : public Transfer {
 public:
  GlooTransfer(std::shared_ptr<GlooGroup> group, Collective collective,
               std::vector<at::Tensor> buffers = {})
      : group_(std::move(group)),
        collective_(std::move(collective)),
        buffers_(std::move(buffers)) {}

  void start() final {
    if (empty()) return;
    auto& in_use = group_->in_use[collective_.call.sequence];
    in_use = buffers_;
    in_use.insert(in_use.end(), {collective_.output, collective_.input});
    issue();
  }

  void complete() final {
    try {
      if (!empty()) finish();
    } catch (const std::exception& error) {
      throw group_->ledger->failed_in("gloo", collective_.call.sequence, error);
    }
    group_->in_use.erase(collective_.call.sequence);
    group_->ledger->reach(collective_.call.sequence, Stage::waited_for);
  }

 protected:
  // Neither is called for empty tensors.
  virtual void issue() {}
  virtual void finish() { work_->wait(); }

  std::shared_ptr<GlooGroup> group_;
  Collective collective_;
  std::vector<at::Tensor> buffers_;  // owned
  GlooWork work_;

 private:
  bool empty() const { return !collective_.output.defined() || collective_.output.numel() == 0; }
};

class GlooAllGather final : public GlooTransfer {
 public:
  GlooAllGather(std::shared_ptr<GlooGroup> group, const Collective& collective)
      : GlooTransfer(std::move(group), collective, {scratch_like(collective.output)}) {}

 private:
  void issue() override {
    const at::Tensor& copies = buffers_[0];  // [W n], the input for every rank
    repeat(*group_, copies, collective_.input);
    work_ = all_to_all(*group_, collective_.output, copies);
  }
};

// An exchange of parts and a sum here: gloo's own reduce-scatter sums in an order of its own.
class GlooReduceScatter final : public GlooTransfer {
 public:
  GlooReduceScatter(std::shared_ptr<GlooGroup> group, const Collective& collective)
      : GlooTransfer(std::move(group), collective, {scratch_like(collective.input)}) {}

 private:
  void issue() override { work_ = all_to_all(*group_, buffers_[0], collective_.input); }

  void finish() override {
    work_->wait();
    sum_parts(*group_, collective_.output,
              buffers_[0]);  // [W n], this rank's part of every rank's input
  }
};

class GlooAllReduce final : public GlooTransfer {
 public:
  GlooAllReduce(std::shared_ptr<GlooGroup> group, const Collective& collective)
      : GlooTransfer(group, collective,
                     {scratch(padded_numel(*group, collective), collective.input.scalar_type()),
                      scratch(padded_numel(*group, collective), collective.input.scalar_type())}),
        padded_(buffers_[0]),
        received_(buffers_[1]) {}

 private:
  static int64_t padded_numel(const GlooGroup& group, const Collective& collective) {
    const int64_t part = (collective.input.numel() + group.size() - 1) / group.size();
    return part * group.size();
  }

  void issue() override {
    std::memcpy(padded_.data_ptr(), collective_.input.const_data_ptr(), collective_.input.nbytes());
    const size_t rest = padded_.nbytes() - collective_.input.nbytes();
    std::memset(static_cast<char*>(padded_.data_ptr()) + collective_.input.nbytes(), 0, rest);
    work_ = all_to_all(*group_, received_, padded_);
  }

  void finish() override {
    work_->wait();
    const at::Tensor sum = scratch(padded_.numel() / group_->size(), padded_.scalar_type());
    sum_parts(*group_, sum, received_);
    repeat(*group_, received_, sum);
    all_to_all(*group_, padded_, received_)->wait();
    std::memcpy(collective_.output.mutable_data_ptr(), padded_.const_data_ptr(),
                collective_.output.nbytes());
  }

  at::Tensor padded_;    // [W part]: the input and zeros, then the sums
  at::Tensor received_;  // [W part], this rank's part of every rank's input, then its sum for every
                         // rank
};

class GlooBroadcast final : public GlooTransfer {
 public:
  using GlooTransfer::GlooTransfer;

 private:
  void issue() override {
    std::vector<at::Tensor> tensors{bytes_of(collective_.output)};
    c10d::BroadcastOptions options;
    options.rootRank = std::min(group_->ledger->group().rank_of(collective_.call.root),
                                group_->gloo->getSize() - 1);  // which may be a replayed rank alone
    work_ = group_->gloo->broadcast(tensors, options);
  }
};

// The ledger's comparison is the barrier.
class GlooBarrier final : public GlooTransfer {
 public:
  using GlooTransfer::GlooTransfer;
};

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(std::shared_ptr<GlooGroup> group) : group_(std::move(group)) {}

  std::unique_ptr<Transfer> begin(const Collective& collective) override {
    switch (collective.call.operation) {
      case Operation::all_gather:
        return std::make_unique<GlooAllGather>(group_, collective);
      case Operation::reduce_scatter:
        return std::make_unique<GlooReduceScatter>(group_, collective);
      case Operation::all_reduce:
        return std::make_unique<GlooAllReduce>(group_, collective);
      case Operation::broadcast:
        return std::make_unique<GlooBroadcast>(group_, collective);
      case Operation::barrier:
        return std::make_unique<GlooBarrier>(group_, collective);
    }
    throw std::logic_error("unknown operation");
  }

  c10::Allocator* allocator() override { return c10::GetAllocator(c10::kCPU); }

 private:
  std::shared_ptr<GlooGroup> group_;
};

}  // namespace

std::shared_ptr<Transport> make_gloo_transport(const RankContext& context,
                                               std::shared_ptr<Ledger> ledger,
                                               std::chrono::milliseconds timeout) {
  auto gloo = connect_gloo(context, *ledger, "bytes", timeout);
  return std::make_shared<GlooTransport>(
      std::shared_ptr<GlooGroup>(new GlooGroup{std::move(gloo), std::move(ledger)}));
}

}  // namespace fsdp
