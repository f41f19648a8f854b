#include <comm/rank_order_sum.h>
#include <comm/transport.h>
#include <memory/live_bytes.h>
#include <torch/torch.h>

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
  int rank;
  int world_size;
  std::shared_ptr<SharedRegion> shared;
  std::shared_ptr<Ledger> ledger;

  c10::Allocator* allocator() const { return shared->allocator(rank); }

  const char* data(int peer, uint64_t sequence) const {
    return reinterpret_cast<const char*>(ledger->record(peer, sequence).address);
  }

  // The ranks from one on, going round: so that not all read the same memory at once.
  int after(int i) const { return (rank + i) % world_size; }

  void meet(uint64_t sequence, uint32_t stage) const {
    ledger->advance(sequence);
    ledger->wait_for_all(sequence, stage);
  }
};

void copy(void* to, const void* from, size_t bytes) {
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
    address_ = reinterpret_cast<uint64_t>(staging_.get());
  }

  uint64_t address() const { return address_; }
  bool staged() const { return static_cast<bool>(staging_); }

 private:
  c10::DataPtr staging_;  // owned, until every rank has read it
  uint64_t address_;
};

class AllGather final : public Transfer {
 public:
  AllGather(const Peers& peers, const Collective& call)
      : peers_(peers), call_(call), input_(peers, call.input) {}

  uint64_t address() const override { return input_.address(); }
  bool lends() const { return call_.input.numel() > 0 && !input_.staged(); }

  void complete() override {
    char* output = static_cast<char*>(call_.output.mutable_data_ptr());
    size_t bytes = call_.input.nbytes();
    for (int i = 0; i < peers_.world_size; ++i) {
      int peer = peers_.after(i);
      copy(output + peer * bytes, peers_.data(peer, call_.sequence), bytes);
    }
    peers_.ledger->advance(call_.sequence);
    if (input_.staged()) peers_.ledger->wait_for_all(call_.sequence, 2);
  }

 private:
  Peers peers_;
  Collective call_;
  Readable input_;
};

class ReduceScatter final : public Transfer {
 public:
  ReduceScatter(const Peers& peers, const Collective& call)
      : peers_(peers), call_(call), input_(peers, call.input) {}

  uint64_t address() const override { return input_.address(); }

  void complete() override {
    size_t offset = peers_.rank * call_.output.nbytes();
    std::vector<const void*> parts;
    for (int peer = 0; peer < peers_.world_size; ++peer) {
      parts.push_back(peers_.data(peer, call_.sequence) + offset);
    }
    sum_in_rank_order(call_.output.mutable_data_ptr(), parts, call_.output.numel(),
                      call_.output.scalar_type());
    peers_.meet(call_.sequence, 2);  // the input may be changed or freed after wait()
  }

 private:
  Peers peers_;
  Collective call_;
  Readable input_;
};

// Rank r sums part r of all tensors into part r of its own readable one, which nobody else reads
// until then; when all have, everyone copies the other parts.
class AllReduce final : public Transfer {
 public:
  AllReduce(const Peers& peers, const Collective& call)
      : peers_(peers), call_(call), tensor_(peers, call.input) {}

  uint64_t address() const override { return tensor_.address(); }

  void complete() override {
    auto element = static_cast<int64_t>(call_.output.element_size());
    auto [begin, end] = part(peers_.rank);
    std::vector<const void*> parts;
    for (int peer = 0; peer < peers_.world_size; ++peer) {
      parts.push_back(peers_.data(peer, call_.sequence) + begin * element);
    }
    auto* readable = reinterpret_cast<char*>(tensor_.address());
    sum_in_rank_order(readable + begin * element, parts, end - begin, call_.output.scalar_type());
    peers_.meet(call_.sequence, 2);

    char* output = static_cast<char*>(call_.output.mutable_data_ptr());
    for (int i = 0; i < peers_.world_size; ++i) {
      int peer = peers_.after(i);
      auto [from, to] = part(peer);
      copy(output + from * element, peers_.data(peer, call_.sequence) + from * element,
           (to - from) * element);
    }
    peers_.meet(call_.sequence, 3);
  }

 private:
  std::pair<int64_t, int64_t> part(int peer) const {
    constexpr int64_t kAligned = 16;  // elements
    int64_t numel = call_.output.numel();
    int64_t each = (numel + peers_.world_size - 1) / peers_.world_size;
    each = (each + kAligned - 1) / kAligned * kAligned;
    return {std::min(numel, peer * each), std::min(numel, (peer + 1) * each)};
  }

  Peers peers_;
  Collective call_;
  Readable tensor_;
};

class Broadcast final : public Transfer {
 public:
  Broadcast(const Peers& peers, const Collective& call) : peers_(peers), call_(call) {
    if (peers.rank == call.root) source_.emplace(peers, call.input);
  }

  uint64_t address() const override { return source_ ? source_->address() : 0; }

  void complete() override {
    if (!source_) {
      copy(call_.output.mutable_data_ptr(), peers_.data(call_.root, call_.sequence),
           call_.output.nbytes());
    }
    peers_.ledger->advance(call_.sequence);
    if (source_) peers_.ledger->wait_for_all(call_.sequence, 2);
  }

 private:
  Peers peers_;
  Collective call_;
  std::optional<Readable> source_;  // on the root
};

// That every rank has called it was seen before complete().
class Barrier final : public Transfer {
 public:
  Barrier(const Peers& peers, const Collective& call) : peers_(peers), call_(call) {}
  void complete() override { peers_.ledger->advance(call_.sequence); }

 private:
  Peers peers_;
  Collective call_;
};

// Tensors that the other ranks read in place: kept alive until they have, whatever the caller does.
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
      ledger_->wait_for_all(tensors_.front().first, 2);
  }

 private:
  void give_back() {
    while (!tensors_.empty() && ledger_->all_reached(tensors_.front().first, 2))
      tensors_.pop_front();
  }

  std::shared_ptr<Ledger> ledger_;
  std::deque<std::pair<uint64_t, at::Tensor>> tensors_;
};

// Moves the bytes with the caller's own hands, in wait(): no thread of its own, so what happens is
// the same in every run.
class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(Peers peers) : peers_(std::move(peers)), lent_(peers_.ledger) {}

  std::unique_ptr<Transfer> begin(const Collective& call) override {
    switch (call.operation) {
      case Operation::all_gather: {
        auto transfer = std::make_unique<AllGather>(peers_, call);
        if (transfer->lends()) lent_.add(call.sequence, call.input);
        return transfer;
      }
      case Operation::reduce_scatter:
        return std::make_unique<ReduceScatter>(peers_, call);
      case Operation::all_reduce:
        return std::make_unique<AllReduce>(peers_, call);
      case Operation::broadcast:
        return std::make_unique<Broadcast>(peers_, call);
      case Operation::barrier:
        return std::make_unique<Barrier>(peers_, call);
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
        "backend shm needs ranks that start() has forked: those started as " +
        std::string("processes of their own have gloo"));
  }
  return std::make_shared<ShmTransport>(
      Peers{context.rank, context.world_size, context.shared, std::move(ledger)});
}

}  // namespace fsdp
