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

// What a Communicator consists of. Only communicator.cpp and what connects the ranks
// (transports/create_communicator.cpp) include this header.

struct IssuedCall;

// The calls of this rank in one group.
struct Connection {
  std::string backend;
  Compare compare{};
  std::shared_ptr<Ledger> ledger;
  std::shared_ptr<Transport> transport;
  uint64_t sequence{};  // of the next call
  // By sequence, modulo their number.
  std::array<std::weak_ptr<IssuedCall>, Ledger::kRing> latest{};

  const Group& group() const { return ledger->group(); }
};

struct CommunicatorState {
  CallRings::Slot place{};
  std::shared_ptr<void> gives_place_back;  // destroyed last, when the transports are
  int global_rank{};
  c10::DeviceType device{};
  bool in_first_iteration{true};
  std::optional<Fault> fault;
  std::shared_ptr<Clock> clock;
  Connection ranks;                    // of the world, or of one replica
  std::optional<Connection> replicas;  // that hold the same shard; nothing if there is one
  bool keep_log{};
  std::vector<Call> log;
  std::exception_ptr failure;  // the first, if a call has failed
  std::atomic<bool> busy{};    // whether a thread calls or waits

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
  Connection* connection;  // of comm
  Call call;
  bool compared;
  std::unique_ptr<Transfer> transfer;  // holds the tensors; null once waited for
  at::Tensor of_replicas{};            // to be summed over the replicas too
  bool complete{};                     // then its tensors are free
  bool done{};                         // a wait() of its handle has returned
};

}  // namespace fsdp
