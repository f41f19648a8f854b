#include <base/torch.h>
#include <comm/backends.h>
#include <comm/ledger.h>
#include <comm/tree_sum.h>
#include <memory/live_bytes.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

// What a call needs to know of its rank.
struct Peers {
  int rank;  // in the group
  int size;  // of the group
  std::shared_ptr<SharedRegion> shared;
  std::shared_ptr<Ledger> ledger;

  c10::Allocator* allocator() const { return shared->allocator(ledger->group().world_rank(rank)); }

  // The ranks in turn, beginning with this one, so that not all read the same memory at once.
  int after(int i) const { return (rank + i) % size; }
};

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

// A tensor where the other ranks can read it: in place if it lies in an arena, else a copy in this
// rank's arena.
class Readable {
 public:
  Readable(const Peers& peers, const at::Tensor& tensor)
      : address_(peers.shared->address_of(tensor.const_data_ptr())) {
    if (address_ != 0 || tensor.nbytes() == 0) return;
    MemoryScope scope(MemoryClass::communication);
    staging_ = peers.allocator()->allocate(tensor.nbytes());
    std::memcpy(staging_.mutable_get(), tensor.const_data_ptr(), tensor.nbytes());
    address_ = peers.shared->address_of(staging_.get());
  }

  uint64_t address() const { return address_; }
  bool staged() const { return static_cast<bool>(staging_); }

 private:
  c10::DataPtr staging_;  // owned, until every rank has read it
  uint64_t address_;
};

// What the calls have in common.
class ShmTransfer : public Transfer {
 protected:
  ShmTransfer(const Peers& peers, const Collective& collective)
      : peers_(peers), collective_(collective) {}

  // What `peer` has published for the others to read.
  const char* data(int peer) const {
    return peers_.shared->data_at(peers_.ledger->at(peer, sequence()).address);
  }

  void reach(Stage stage) { peers_.ledger->reach(sequence(), stage); }
  void wait_for_all(Stage stage) { peers_.ledger->wait_for_all(sequence(), stage); }
  void meet(Stage stage) {
    reach(stage);
    wait_for_all(stage);
  }

  Peers peers_;
  Collective collective_;

 private:
  uint64_t sequence() const { return collective_.call.sequence; }
};

class ShmAllGather final : public ShmTransfer {
 public:
  ShmAllGather(const Peers& peers, const Collective& collective)
      : ShmTransfer(peers, collective), input_(peers, collective.input) {}

  uint64_t address() const override { return input_.address(); }
  bool lends() const { return collective_.input.numel() > 0 && !input_.staged(); }

  void complete() override {
    char* output = static_cast<char*>(collective_.output.mutable_data_ptr());
    size_t bytes = collective_.input.nbytes();
    for (int i = 0; i < peers_.size; ++i) {
      int peer = peers_.after(i);
      copy_bytes(output + peer * bytes, data(peer), bytes);
    }
    reach(Stage::waited_for);
    if (input_.staged()) wait_for_all(Stage::waited_for);
  }

 private:
  Readable input_;
};

class ShmReduceScatter final : public ShmTransfer {
 public:
  ShmReduceScatter(const Peers& peers, const Collective& collective)
      : ShmTransfer(peers, collective), input_(peers, collective.input) {}

  uint64_t address() const override { return input_.address(); }

  void complete() override {
    const at::Tensor& output = collective_.output;
    const size_t offset = peers_.rank * (collective_.input.nbytes() / peers_.size);
    std::vector<const void*> parts;
    for (int peer = 0; peer < peers_.size; ++peer) {
      parts.push_back(data(peer) + offset);
    }
    sum_as_tree(output.mutable_data_ptr(), output.scalar_type(), parts, output.numel(),
                collective_.input.scalar_type());
    meet(Stage::waited_for);  // the input may be changed or freed after wait()
  }

 private:
  Readable input_;
};

// Rank r sums part r of all tensors into part r of its own readable one, which no other rank reads
// before. When all ranks have done so, each copies the other parts.
class ShmAllReduce final : public ShmTransfer {
 public:
  ShmAllReduce(const Peers& peers, const Collective& collective)
      : ShmTransfer(peers, collective), tensor_(peers, collective.input) {}

  uint64_t address() const override { return tensor_.address(); }

  void complete() override {
    auto element = static_cast<int64_t>(collective_.output.element_size());
    auto [begin, end] = part(peers_.rank);
    std::vector<const void*> parts;
    for (int peer = 0; peer < peers_.size; ++peer) {
      parts.push_back(data(peer) + begin * element);
    }
    char* readable = peers_.shared->data_at(tensor_.address());
    const at::ScalarType dtype = collective_.output.scalar_type();
    sum_as_tree(readable + begin * element, dtype, parts, end - begin, dtype);
    meet(Stage::waited_for);

    char* output = static_cast<char*>(collective_.output.mutable_data_ptr());
    for (int i = 0; i < peers_.size; ++i) {
      int peer = peers_.after(i);
      auto [from, to] = part(peer);
      copy_bytes(output + from * element, data(peer) + from * element, (to - from) * element);
    }
    meet(Stage::finished);
  }

 private:
  std::pair<int64_t, int64_t> part(int peer) const {
    constexpr int64_t kAligned = 16;  // elements
    int64_t numel = collective_.output.numel();
    int64_t each = (numel + peers_.size - 1) / peers_.size;
    each = (each + kAligned - 1) / kAligned * kAligned;
    return {std::min(numel, peer * each), std::min(numel, (peer + 1) * each)};
  }

  Readable tensor_;
};

class ShmBroadcast final : public ShmTransfer {
 public:
  ShmBroadcast(const Peers& peers, const Collective& collective) : ShmTransfer(peers, collective) {
    if (peers.rank == root()) source_.emplace(peers, collective.input);
  }

  uint64_t address() const override { return source_ ? source_->address() : 0; }

  void complete() override {
    if (!source_) {
      copy_bytes(collective_.output.mutable_data_ptr(), data(root()), collective_.output.nbytes());
    }
    reach(Stage::waited_for);
    if (source_) wait_for_all(Stage::waited_for);
  }

 private:
  int root() const { return peers_.ledger->group().rank_of(collective_.call.root); }

  std::optional<Readable> source_;  // on the root
};

// complete() is called after every rank was seen to have called it: nothing is left to do.
class ShmBarrier final : public ShmTransfer {
 public:
  ShmBarrier(const Peers& peers, const Collective& collective) : ShmTransfer(peers, collective) {}
  void complete() override { reach(Stage::waited_for); }
};

// Keeps tensors alive that the other ranks read in place until they have, whatever the caller does.
class Lent {
 public:
  explicit Lent(std::shared_ptr<Ledger> ledger) : ledger_(std::move(ledger)) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  // A rank that leaves does not wait for the others: what they still read stays as it is, to the
  // end of the process.
  ~Lent() {
    give_back();
    for (auto& [sequence, tensor] : tensors_)
      tensor.unsafeReleaseTensorImpl();
  }

  void add(uint64_t sequence, const at::Tensor& tensor) {
    give_back();
    tensors_.emplace_back(sequence, tensor);
  }

  void wait_for_readers() {
    for (; !tensors_.empty(); tensors_.pop_front())
      ledger_->wait_for_all(tensors_.front().first, Stage::waited_for);
  }

 private:
  void give_back() {
    while (!tensors_.empty() && ledger_->all_reached(tensors_.front().first, Stage::waited_for))
      tensors_.pop_front();
  }

  std::shared_ptr<Ledger> ledger_;
  std::deque<std::pair<uint64_t, at::Tensor>> tensors_;
};

// The caller itself moves the bytes, in wait(). There is no thread besides, so every run does the
// same.
class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(Peers peers) : peers_(std::move(peers)), lent_(peers_.ledger) {}

  std::unique_ptr<Transfer> begin(const Collective& collective) override {
    switch (collective.call.operation) {
      case Operation::all_gather: {
        auto transfer = std::make_unique<ShmAllGather>(peers_, collective);
        if (transfer->lends()) lent_.add(collective.call.sequence, collective.input);
        return transfer;
      }
      case Operation::reduce_scatter:
        return std::make_unique<ShmReduceScatter>(peers_, collective);
      case Operation::all_reduce:
        return std::make_unique<ShmAllReduce>(peers_, collective);
      case Operation::broadcast:
        return std::make_unique<ShmBroadcast>(peers_, collective);
      case Operation::barrier:
        return std::make_unique<ShmBarrier>(peers_, collective);
    }
    throw std::logic_error("unknown operation");
  }

  c10::Allocator* allocator() override { return peers_.allocator(); }
  void wait_for_readers() override { lent_.wait_for_readers(); }

 private:
  Peers peers_;
  Lent lent_;
};

}  // namespace

std::shared_ptr<Transport> make_shm_transport(const RankContext& context,
                                              std::shared_ptr<Ledger> ledger) {
  if (!context.shared->has_arenas()) {
    throw std::invalid_argument(
        "backend shm: ulimit -f does not let this process make the memory that ranks share; raise "
        "it, or take gloo");
  }
  return std::make_shared<ShmTransport>(
      Peers{ledger->rank(), ledger->group().size, context.shared, ledger});
}

}  // namespace fsdp
