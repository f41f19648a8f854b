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
  at::Tensor output;  // of all-reduce and broadcast: the one tensor
  at::Tensor input;   // of all-reduce and broadcast: the one tensor
};

// The transfer of the bytes of one call. Its functions are called in the order of their
// declaration.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Returns the address to publish with the call, where the other ranks read this rank's data; 0:
  // they read nothing.
  virtual uint64_t address() const { return 0; }

  // Called after the call is published and matches every call published so far. If two ranks
  // disagree, at most one gets here, so no byte is misdelivered.
  virtual void start() {}

  // Called by wait(), after every rank's call was compared. Returns when the output is complete.
  virtual void complete() = 0;

  // Returns the start and the end of the transfer [ns]; nothing if the transport does not know
  // them.
  virtual std::optional<std::pair<int64_t, int64_t>> moved() const { return std::nullopt; }
};

// Moves the bytes of collectives.
class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual std::unique_ptr<Transfer> begin(const Collective& collective) = 0;

  // Returns the allocator of memory that the other ranks read, or the library sends, without a
  // copy.
  virtual c10::Allocator* allocator() = 0;

  // Waits until no other rank reads this rank's inputs any more. Returns at once if inputs are
  // copied.
  virtual void wait_for_readers() {}
};

}  // namespace fsdp
