#pragma once

#include <base/torch.h>
#include <comm/transport.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>

namespace fsdp {

class Ledger;

// A transport over a process group of c10d whose collectives run on a stream of their own, as
// NCCL's do:
// - start() makes one call of the group. Its stream waits for what the current stream has queued by
//   then, so it reads what was written before, and writes to memory that was freed before.
// - complete() makes the current stream wait for the group's. The CPU waits for neither.
// - Until complete(), the transfer holds the tensors. Their memory is freed by the current stream,
//   in whose order it is reused, so no tensor has to be recorded on the group's stream.
// - A group that has no call under way is shut down at the end. If a rank has failed, it is left to
//   the end of the process, because to shut it down is to wait for the other ranks.
// What the group throws comes as a CollectiveError that names the library, the rank and the call.
struct ProcessGroup {
  std::string library;                        // "nccl"
  c10::intrusive_ptr<c10d::Backend> backend;  // of the ledger's group of ranks
  c10::DeviceType device;                     // of the tensors
};
std::shared_ptr<Transport> make_process_group_transport(ProcessGroup group,
                                                        std::shared_ptr<Ledger> ledger);

}  // namespace fsdp
