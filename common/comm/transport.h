#pragma once

#include <comm/communicator.h>

#include <optional>
#include <utility>

namespace fsdp {

// One call, with its tensors. Contiguous, checked by the Communicator.
struct Collective {
  Operation operation;
  at::Tensor output;  // all-reduce and broadcast: the tensor itself
  at::Tensor input;   // likewise
  int root{};
};

// A call under way.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual uint64_t address() const { return 0; }  // published with the call
  virtual void complete(uint64_t sequence) = 0;   // after every rank's call was compared
  // [ns] from when to when the bytes moved, once complete() has returned; nothing if it can't tell.
  virtual std::optional<std::pair<int64_t, int64_t>> moved() const { return std::nullopt; }
};

// What moves the bytes.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<Transfer> begin(const Collective& collective) = 0;
  virtual c10::Allocator* allocator() = 0;  // of memory that needs no copy on the way out
};

std::shared_ptr<Transport> make_shm_transport(const RankContext& context,
                                              std::shared_ptr<Ledger> ledger);
std::shared_ptr<Transport> make_gloo_transport(const RankContext& context,
                                               std::shared_ptr<Ledger> ledger,
                                               std::chrono::milliseconds timeout);

}  // namespace fsdp
