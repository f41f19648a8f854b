#pragma once

#include <ATen/core/Tensor.h>
#include <comm/call.h>

#include <memory>
#include <optional>
#include <utility>

namespace fsdp {

// A call with its tensors, which check_tensors() has accepted. A barrier has no tensors.
struct Collective {
  Call call;
  at::Tensor output;  // in an all-reduce or a broadcast: the tensor, which is also the input
  at::Tensor input;   // in an all-reduce or a broadcast: the tensor, which is also the output
};

// The transfer of the bytes of one call. Communicator calls address(), start(), complete() and
// moved(), in this order.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Returns the address at which the other ranks read this rank's data, to be published with the
  // call; 0: they read none.
  virtual uint64_t address() const { return 0; }

  // Starts the transfer. Called after the call is published and, if it is to be compared, matches
  // every call that other ranks have published so far. If the calls of two ranks do not match,
  // start() is called on at most one of these ranks, so no bytes go to the wrong call.
  virtual void start() {}

  // Completes the transfer, and returns when the output is complete. Called by wait() of the
  // Handle; if the call is to be compared, after the calls of all ranks were compared.
  virtual void complete() = 0;

  // Returns the start and the end of the transfer [ns]; nothing if the transport does not know
  // them.
  virtual std::optional<std::pair<int64_t, int64_t>> moved() const { return std::nullopt; }
};

// A transport, such as shm, gloo or nccl, which moves the bytes of collectives between ranks.
class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual std::unique_ptr<Transfer> begin(const Collective& collective) = 0;

  // Returns the allocator of the memory of Communicator::empty(). With shm and tensors on the CPU,
  // this is memory that the ranks share: the other ranks read an input in this memory in place.
  // Otherwise it is the memory of the usual allocator of the device.
  virtual c10::Allocator* allocator() = 0;

  // Waits until no other rank reads this rank's inputs any more. Returns at once if inputs are
  // copied.
  virtual void wait_for_readers() {}
};

}  // namespace fsdp
