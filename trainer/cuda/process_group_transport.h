#pragma once

#include <base/torch.h>
#include <comm/transport.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>

namespace fsdp {

class Ledger;

// A transport over a process group of c10d whose collectives run on a stream of their own, as
// NCCL's do:
// - start() issues one call of the group. The group's stream first waits for all that the current
//   stream has queued. So the call reads values that were written before it, and may write to
//   memory that was freed before it.
// - complete() makes the current stream wait for the group's stream.
// - Neither start() nor complete() makes the CPU wait.
// - The transfer holds its tensors until complete(). Their memory is freed on the current stream
//   and reused in the order of that stream, so no tensor needs record_stream().
// - The destructor shuts the group down if no call is under way and no exception is being handled.
//   Otherwise a rank has failed, and the group stays until the process ends, because shutdown()
//   would wait for the other ranks.
// Throws: CollectiveError, which names the library, the rank and the call, in place of any
// exception of the group.
struct ProcessGroup {
  std::string library;                        // name of the library, such as "nccl", for messages
  c10::intrusive_ptr<c10d::Backend> backend;  // process group of the ranks of the ledger's group
  c10::DeviceType device;                     // device of the tensors
};
std::shared_ptr<Transport> make_process_group_transport(ProcessGroup group,
                                                        std::shared_ptr<Ledger> ledger);

}  // namespace fsdp
