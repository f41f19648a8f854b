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
  uint64_t sequence{};  // sequence of this rank's next call in the group
  // This rank's latest calls in the group; the call with sequence s is at index s % kRing.
  std::array<std::weak_ptr<IssuedCall>, Ledger::kRing> latest{};

  const Group& group() const { return ledger->group(); }
};

struct CommunicatorState {
  CallRings::Slot place{};
  // The deleter of gives_place_back releases `place`, this Communicator's set of rings. The member
  // is declared before those that own transports, so it is destroyed after them.
  std::shared_ptr<void> gives_place_back;
  int global_rank{};
  c10::DeviceType device{};
  bool in_first_iteration{true};
  std::optional<Fault> fault;
  std::shared_ptr<Clock> clock;
  Connection ranks;  // connection to all ranks, or, with several replicas, to those of this replica
  // Connection to the ranks with the same shard; nothing: one replica.
  std::optional<Connection> replicas;
  bool keep_log{};
  std::vector<Call> log;
  std::exception_ptr failure;  // error of the first call that failed; null: no call has failed
  std::atomic<bool> busy{};    // whether a thread is issuing a call or waiting for one

  // Returns whether calls over `connection` are compared between ranks. With
  // Compare::first_iteration, this is true only in the first iteration.
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
  Connection* connection;  // points to comm->ranks or to *comm->replicas
  Call call;
  bool compared;
  // The transfer, which keeps the call's tensors alive; null after the wait for the call.
  std::unique_ptr<Transfer> transfer;
  // If defined: output of a reduce-scatter that must still be summed over the replicas.
  at::Tensor of_replicas{};
  bool complete{};  // whether the call no longer uses its tensors
  bool done{};      // whether wait() of the call's Handle has returned
};

}  // namespace fsdp
