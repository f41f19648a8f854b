#pragma once

#include <ATen/core/Tensor.h>
#include <comm/call_rings.h>
#include <comm/clock.h>
#include <comm/communicator_options.h>
#include <comm/ledger.h>
#include <comm/transport.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// The state of a Communicator. Only communicator.cpp and the file that connects the ranks
// (transports/create_communicator.cpp) include this header.

struct IssuedCall;

// This rank's connection to one of its groups.
struct Connection {
  std::string backend;
  Compare compare{};
  std::shared_ptr<Ledger> ledger;
  std::shared_ptr<Transport> transport;
  uint64_t sequence{};  // of this rank's next call in the group
  // The latest calls; call `sequence` is at [sequence % kRing].
  std::array<std::weak_ptr<IssuedCall>, Ledger::kRing> latest{};

  const Group& group() const { return ledger->group(); }
};

struct CommunicatorState {
  CallRings::Slot place{};
  // Its deleter gives `place` back to the CallRings. It is declared before the transports, so it is
  // destroyed after them.
  std::shared_ptr<void> gives_place_back;
  int global_rank{};
  c10::DeviceType device{};
  bool in_first_iteration{true};
  std::optional<Fault> fault;
  std::shared_ptr<Clock> clock;
  Connection ranks;                    // all ranks, or the ranks of one replica
  std::optional<Connection> replicas;  // ranks with the same shard; nothing: one replica
  bool keep_log{};
  std::vector<Call> log;
  std::exception_ptr failure;  // of the first call that failed; null: none has
  std::atomic<bool> busy{};    // whether a thread issues or waits

  // Returns whether calls over `connection` are compared between ranks now.
  bool compares(const Connection& connection) const {
    return connection.compare == Compare::always ||
           (connection.compare == Compare::first_iteration && in_first_iteration);
  }

  std::vector<const Connection*> connections() const {
    if (!replicas) return {&ranks};
    return {&ranks, &*replicas};
  }
};

struct IssuedCall {
  std::shared_ptr<CommunicatorState> comm;
  Connection* connection;  // in *comm
  Call call;
  bool compared;
  std::unique_ptr<Transfer> transfer;  // holds the tensors; null after the wait
  at::Tensor of_replicas{};            // if defined: the output, still to be summed over replicas
  bool complete{};                     // the call no longer uses its tensors
  bool done{};                         // a wait() of its handle has returned
};

}  // namespace fsdp
