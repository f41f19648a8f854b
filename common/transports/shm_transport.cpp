#include <base/torch.h>
#include <comm/ledger.h>
#include <comm/tree_sum.h>
#include <launch/rank_context.h>
#include <launch/shared_region.h>
#include <memory/live_bytes.h>
#include <transports/backends.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

// This rank's place in a group, and the memory that the ranks of the group share.
struct Peers {
  int rank;  // this rank's number in the group
  int size;  // number of ranks of the group
  std::shared_ptr<SharedRegion> shared;
  std::shared_ptr<Ledger> ledger;

  c10::Allocator* allocator() const { return shared->allocator(ledger->group().world_rank(rank)); }

  // Returns the i-th rank of a round that begins with this rank, so that not all ranks read the
  // same memory at once.
  int after(int i) const { return (rank + i) % size; }
};

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

// A tensor that the other ranks can read: in place if it lies in an arena (memory for tensors that
// the ranks share), otherwise as a copy in this rank's arena.
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
  // The copy, which this object keeps until every rank has read it; null if the other ranks read
  // the tensor in place.
  c10::DataPtr staging_;
  uint64_t address_;
};

// A transfer through memory that the ranks share. The calling rank itself moves the bytes, in
// complete().
class ShmTransfer final : public Transfer {
 public:
  ShmTransfer(const Peers& peers, const Collective& collective)
      : peers_(peers), collective_(collective) {
    const Operation operation = collective.call.operation;
    const bool sends = operation != Operation::barrier &&
                       (operation != Operation::broadcast || peers.rank == root());
    if (sends) source_.emplace(peers, collective.input);
  }

  uint64_t address() const override { return source_ ? source_->address() : 0; }

  // Returns whether the other ranks read the input of this call in place until they have waited for
  // the call: true for an all-gather whose input lies in an arena (memory that the ranks share).
  bool lends() const {
    return collective_.call.operation == Operation::all_gather && collective_.input.numel() > 0 &&
           !source_->staged();
  }

  void complete() override {
    switch (collective_.call.operation) {
      case Operation::all_gather:
        return all_gather();
      case Operation::reduce_scatter:
        return reduce_scatter();
      case Operation::all_reduce:
        return all_reduce();
      case Operation::broadcast:
        return broadcast();
      // A barrier moves no bytes. The Ledger has shown that every rank has called barrier().
      case Operation::barrier:
        return advance(Stage::waited_for);
    }
  }

 private:
  void all_gather() {
    char* output = static_cast<char*>(collective_.output.mutable_data_ptr());
    const size_t bytes = collective_.input.nbytes();
    for (int i = 0; i < peers_.size; ++i) {
      const int peer = peers_.after(i);
      copy_bytes(output + peer * bytes, data(peer), bytes);
    }
    advance(Stage::waited_for);
    if (source_->staged()) wait_for_all(Stage::waited_for);
  }

  void reduce_scatter() {
    const at::Tensor& output = collective_.output;
    const size_t offset = peers_.rank * (collective_.input.nbytes() / peers_.size);
    sum_as_tree(output.mutable_data_ptr(), output.scalar_type(), all_data(offset), output.numel(),
                collective_.input.scalar_type());
    // Waits until every rank has read the input, because the caller may change or free it after
    // wait().
    meet(Stage::waited_for);
  }

  // Rank r sums part r of all tensors into part r of its own readable tensor, which no other rank
  // reads before the sums are complete. When all ranks have summed, each rank copies the parts from
  // the readable tensors of all ranks to its output.
  void all_reduce() {
    const auto element = static_cast<int64_t>(collective_.output.element_size());
    const auto [begin, end] = part(peers_.rank);
    char* readable = peers_.shared->data_at(address());
    const at::ScalarType dtype = collective_.output.scalar_type();
    sum_as_tree(readable + begin * element, dtype, all_data(begin * element), end - begin, dtype);
    meet(Stage::waited_for);

    char* output = static_cast<char*>(collective_.output.mutable_data_ptr());
    for (int i = 0; i < peers_.size; ++i) {
      const int peer = peers_.after(i);
      const auto [from, to] = part(peer);
      copy_bytes(output + from * element, data(peer) + from * element, (to - from) * element);
    }
    meet(Stage::finished);
  }

  void broadcast() {
    if (!source_)
      copy_bytes(collective_.output.mutable_data_ptr(), data(root()), collective_.output.nbytes());
    advance(Stage::waited_for);
    if (source_) wait_for_all(Stage::waited_for);
  }

  // Returns the address, in this process, of the data that rank `peer` of the group has published
  // with this call.
  const char* data(int peer) const {
    return peers_.shared->data_at(peers_.ledger->at(peer, sequence()).address);
  }
  std::vector<const void*> all_data(size_t offset) const {
    std::vector<const void*> all;
    for (int peer = 0; peer < peers_.size; ++peer)
      all.push_back(data(peer) + offset);
    return all;
  }

  std::pair<int64_t, int64_t> part(int peer) const {
    constexpr int64_t kAligned = 16;  // a part begins at a multiple of 16 elements
    const int64_t numel = collective_.output.numel();
    int64_t each = (numel + peers_.size - 1) / peers_.size;
    each = (each + kAligned - 1) / kAligned * kAligned;
    return {std::min(numel, peer * each), std::min(numel, (peer + 1) * each)};
  }

  int root() const { return peers_.ledger->group().rank_of(collective_.call.root); }
  uint64_t sequence() const { return collective_.call.sequence; }
  void advance(Stage stage) { peers_.ledger->advance(sequence(), stage); }
  void wait_for_all(Stage stage) { peers_.ledger->wait_for_all(sequence(), stage); }
  void meet(Stage stage) {
    advance(stage);
    wait_for_all(stage);
  }

  Peers peers_;
  Collective collective_;
  // What the other ranks read from this rank; nothing if they read nothing from it in this call.
  std::optional<Readable> source_;
};

// Keeps inputs that other ranks read in place alive until they have been read, even if the caller
// frees them.
class InputsReadInPlace {
 public:
  explicit InputsReadInPlace(std::shared_ptr<Ledger> ledger) : ledger_(std::move(ledger)) {}
  InputsReadInPlace(const InputsReadInPlace&) = delete;
  InputsReadInPlace& operator=(const InputsReadInPlace&) = delete;

  // A rank that ends does not wait for the other ranks: the inputs that they may still read stay
  // allocated until the process ends.
  ~InputsReadInPlace() {
    release_set();
    for (auto& [sequence, tensor] : tensors_)
      tensor.unsafeReleaseTensorImpl();
  }

  void add(uint64_t sequence, const at::Tensor& tensor) {
    release_set();
    tensors_.emplace_back(sequence, tensor);
  }

  void wait_for_readers() {
    for (; !tensors_.empty(); tensors_.pop_front())
      ledger_->wait_for_all(tensors_.front().first, Stage::waited_for);
  }

 private:
  void release_set() {
    while (!tensors_.empty() && ledger_->all_reached(tensors_.front().first, Stage::waited_for))
      tensors_.pop_front();
  }

  std::shared_ptr<Ledger> ledger_;
  std::deque<std::pair<uint64_t, at::Tensor>> tensors_;
};

// Moves bytes through memory that the ranks share. Uses no other thread, so every run executes the
// same operations in the same order.
class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(Peers peers) : peers_(std::move(peers)), lent_(peers_.ledger) {}

  std::unique_ptr<Transfer> begin(const Collective& collective) override {
    auto transfer = std::make_unique<ShmTransfer>(peers_, collective);
    if (transfer->lends()) lent_.add(collective.call.sequence, collective.input);
    return transfer;
  }

  c10::Allocator* allocator() override { return peers_.allocator(); }
  void wait_for_readers() override { lent_.wait_for_readers(); }

 private:
  Peers peers_;
  InputsReadInPlace lent_;
};

}  // namespace

std::shared_ptr<Transport> make_shm_transport(const RankContext& context,
                                              std::shared_ptr<Ledger> ledger) {
  if (!context.shared->has_arenas()) {
    throw std::invalid_argument(
        "backend shm: ulimit -f does not let this process make the memory that ranks share; raise "
        "it, or use gloo");
  }
  return std::make_shared<ShmTransport>(
      Peers{ledger->rank(), ledger->group().size, context.shared, ledger});
}

}  // namespace fsdp
