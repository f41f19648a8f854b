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
  uint64_t sequence{};
  int64_t bytes{};  // that this rank receives, by the textbook count
};

// A call under way.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual uint64_t address() const { return 0; }  // published with the call

  // Comes when the call was published and agrees with those of the ranks that were earlier: of two
  // ranks that call differently, at most one comes so far, and no byte of it is taken for another.
  virtual void start() {}

  virtual void complete() = 0;  // after every rank's call was compared

  // [ns] from when to when the bytes moved, once complete() has returned; nothing if it can't tell.
  virtual std::optional<std::pair<int64_t, int64_t>> moved() const { return std::nullopt; }
};

// What moves the bytes.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<Transfer> begin(const Collective& collective) = 0;
  virtual c10::Allocator* allocator() = 0;  // of memory that needs no copy on the way out

  // Returns when no other rank reads what this rank gave any more; at once, where all is copied.
  virtual void wait_for_readers() {}
};

std::shared_ptr<Transport> make_shm_transport(const RankContext& context,
                                              std::shared_ptr<Ledger> ledger);
std::shared_ptr<Transport> make_gloo_transport(const RankContext& context,
                                               std::shared_ptr<Ledger> ledger,
                                               std::chrono::milliseconds timeout);

// NCCL on a stream of its own, for tensors of this rank's GPU; no other rank may use that GPU.
// Throws std::invalid_argument in a build without CUDA.
std::shared_ptr<Transport> make_nccl_transport(const RankContext& context,
                                               std::shared_ptr<Ledger> ledger,
                                               std::chrono::milliseconds timeout);

// The calls of `inner`, which takes tensors on the CPU, for those of `device`: through copies in
// memory of `staging`, which the CPU waits for.
std::shared_ptr<Transport> make_staged_transport(std::shared_ptr<Transport> inner,
                                                 c10::DeviceType device, c10::Allocator* staging);

// The same calls over `inner`, none done before the link would have it done: one at a time, in the
// order of issue, each from when the last rank has issued it. All ranks compute the same times.
std::shared_ptr<Transport> make_link_transport(std::shared_ptr<Transport> inner, const Link& link,
                                               int world_size, std::shared_ptr<Ledger> ledger,
                                               std::shared_ptr<Clock> clock);

}  // namespace fsdp
