#include <base/torch.h>
#include <comm/tree_sum.h>
#include <launch/rank_context.h>
#include <memory/live_bytes.h>
#include <transports/backends.h>
#include <transports/gloo_group.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

using GlooWork = c10::intrusive_ptr<c10d::Work>;

// A gloo group and, for each pending call by its sequence number, the tensors that the threads of
// the group read and write.
struct GlooGroup {
  using Tensors = std::map<uint64_t, std::vector<at::Tensor>>;

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::shared_ptr<Ledger> ledger;
  Tensors in_use{};

  int size() const { return ledger->group().size; }

  // The destructor of gloo's group waits for its calls. If some of them will never end because a
  // rank has failed, ~GlooGroup() leaves the group and its tensors allocated until the process
  // ends.
  ~GlooGroup() {
    if (in_use.empty()) return;
    gloo.release();
    new Tensors(std::move(in_use));  // NOLINT: never freed
  }
};

// Returns a view of the bytes of a tensor, because gloo moves bytes without knowing the dtype. When
// gloo writes to the view, no version counter is raised, as with the other transports.
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

// Fills `copies` [W n] with W copies of `part` [n]. If each rank then sends one of its copies to
// every rank, with all_to_all(), that is an all-gather. gloo's own all-gather is not used, because
// it allocates a buffer of this size and frees it at a time that cannot be predicted.
void repeat(const GlooGroup& group, const at::Tensor& copies, const at::Tensor& part) {
  auto* data = static_cast<char*>(copies.data_ptr());
  for (int rank = 0; rank < group.size(); ++rank) {
    std::memcpy(data + rank * part.nbytes(), part.const_data_ptr(), part.nbytes());
  }
}

// output [n] <- the sum of the W parts of `received` [W n]. `received` may have a narrower dtype
// than `output`.
void sum_parts(const GlooGroup& group, const at::Tensor& output, const at::Tensor& received) {
  std::vector<const void*> parts;
  auto* data = static_cast<const char*>(received.const_data_ptr());
  for (int rank = 0; rank < group.size(); ++rank) {
    parts.push_back(data + rank * (received.nbytes() / group.size()));
  }
  sum_as_tree(output.mutable_data_ptr(), output.scalar_type(), parts, output.numel(),
              received.scalar_type());
}

class GlooTransfer final : public Transfer {
 public:
  // `issue` starts to move the bytes; when they have arrived, `finish` does the rest of the work.
  // Neither is called for empty tensors. `buffers` are the tensors that `issue` and `finish` use in
  // addition to those of the call.
  GlooTransfer(std::shared_ptr<GlooGroup> group, Collective collective,
               std::vector<at::Tensor> buffers = {}, std::function<GlooWork()> issue = {},
               std::function<void()> finish = {})
      : group_(std::move(group)),
        collective_(std::move(collective)),
        buffers_(std::move(buffers)),
        issue_(std::move(issue)),
        finish_(std::move(finish)) {}

  void start() override {
    if (empty()) return;
    auto& in_use = group_->in_use[collective_.call.sequence];
    in_use = buffers_;
    in_use.insert(in_use.end(), {collective_.output, collective_.input});
    work_ = issue_();
  }

  void complete() override {
    try {
      if (work_) work_->wait();
      if (work_ && finish_) finish_();
    } catch (const std::exception& error) {
      throw group_->ledger->library_error("gloo", collective_.call.sequence, error);
    }
    group_->in_use.erase(collective_.call.sequence);
    group_->ledger->advance(collective_.call.sequence, Stage::waited_for);
  }

 private:
  bool empty() const { return !collective_.output.defined() || collective_.output.numel() == 0; }

  std::shared_ptr<GlooGroup> group_;
  Collective collective_;
  // Tensors that issue_ and finish_ use in addition to the input and output of the call.
  std::vector<at::Tensor> buffers_;
  std::function<GlooWork()> issue_;
  std::function<void()> finish_;
  GlooWork work_;  // the c10d::Work of the transfer; null before start(), and for empty tensors
};

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(std::shared_ptr<GlooGroup> group) : group_(std::move(group)) {}

  std::unique_ptr<Transfer> begin(const Collective& call) override {
    switch (call.call.operation) {
      case Operation::all_gather:
        return all_gather(call);
      case Operation::reduce_scatter:
        return reduce_scatter(call);
      case Operation::all_reduce:
        return all_reduce(call);
      case Operation::broadcast:
        return broadcast(call);
      // A barrier moves no bytes over gloo: the Ledger waits until all ranks have called barrier().
      case Operation::barrier:
        return std::make_unique<GlooTransfer>(group_, call);
    }
    throw std::logic_error("unknown operation");
  }

  c10::Allocator* allocator() override { return c10::GetAllocator(c10::kCPU); }

 private:
  std::unique_ptr<Transfer> all_gather(const Collective& call) {
    // [W n], a copy of this rank's input for each rank.
    const at::Tensor copies = scratch_like(call.output);
    const auto issue = [group = group_, call, copies] {
      repeat(*group, copies, call.input);
      return all_to_all(*group, call.output, copies);
    };
    return std::make_unique<GlooTransfer>(group_, call, std::vector{copies}, issue);
  }

  // Exchanges the parts and sums them in the order of tree_sum.h, because gloo's own reduce-scatter
  // sums in another order.
  std::unique_ptr<Transfer> reduce_scatter(const Collective& call) {
    // [W n]: for each rank, the part of its input that this rank sums.
    const at::Tensor received = scratch_like(call.input);
    const auto issue = [group = group_, call, received] {
      return all_to_all(*group, received, call.input);
    };
    const auto finish = [group = group_, call, received] {
      sum_parts(*group, call.output, received);
    };
    return std::make_unique<GlooTransfer>(group_, call, std::vector{received}, issue, finish);
  }

  std::unique_ptr<Transfer> all_reduce(const Collective& call) {
    const int64_t part = (call.input.numel() + group_->size() - 1) / group_->size();
    const at::ScalarType dtype = call.input.scalar_type();
    // [W * part]: at first this rank's input, padded with zeros; at the end the sum over all ranks.
    const at::Tensor padded = scratch(part * group_->size(), dtype);
    // [W * part]: at first, for each rank, the part of its input that this rank sums; later W
    // copies of this rank's sum.
    const at::Tensor received = scratch(part * group_->size(), dtype);
    const auto issue = [group = group_, call, padded, received] {
      auto* data = static_cast<char*>(padded.mutable_data_ptr());
      const size_t bytes = call.input.nbytes();
      std::memcpy(data, call.input.const_data_ptr(), bytes);
      std::memset(data + bytes, 0, padded.nbytes() - bytes);
      return all_to_all(*group, received, padded);
    };
    const auto finish = [group = group_, call, padded, received, part, dtype] {
      const at::Tensor sum = scratch(part, dtype);
      sum_parts(*group, sum, received);
      repeat(*group, received, sum);
      all_to_all(*group, padded, received)->wait();
      std::memcpy(call.output.mutable_data_ptr(), padded.const_data_ptr(), call.output.nbytes());
    };
    return std::make_unique<GlooTransfer>(group_, call, std::vector{padded, received}, issue,
                                          finish);
  }

  std::unique_ptr<Transfer> broadcast(const Collective& call) {
    const auto issue = [group = group_, call] {
      std::vector<at::Tensor> tensors{bytes_of(call.output)};
      c10d::BroadcastOptions options;
      options.rootRank =
          std::min(group->ledger->group().rank_of(call.call.root),
                   group->gloo->getSize() - 1);  // a replayed rank is alone in the group
      return group->gloo->broadcast(tensors, options);
    };
    return std::make_unique<GlooTransfer>(group_, call, std::vector<at::Tensor>(), issue);
  }

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
