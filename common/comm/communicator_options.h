#pragma once

#include <c10/core/DeviceType.h>
#include <comm/clock.h>
#include <comm/default_timeout.h>
#include <comm/link.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace fsdp {

// A fault to inject: `rank` skips its call number `at`, or its process is killed before that call.
struct Fault {
  enum class Kind { skip, kill };
  Kind kind;
  int rank;  // global rank of the rank that skips the call or is killed
  // Number of the call among the rank's calls over all its Communicators: 0, 1, 2, ...
  uint64_t at;
};

// Which calls are compared between ranks. A rank that waits for a compared call also waits until
// the other ranks have issued it. The transports of the CPU wait for this in any case; NCCL does
// not.
enum class Compare { always, first_iteration, never };

struct CommunicatorOptions {
  // The backend: auto, shm, gloo or nccl. auto: on CUDA nccl if every rank of this host has a GPU
  // of its own; otherwise shm between ranks that share memory and gloo between other ranks, on CUDA
  // through copies on the host.
  std::string backend{"auto"};
  std::chrono::milliseconds timeout{kDefaultTimeout};  // limit of each wait for another rank
  std::optional<Fault> fault{};
  std::optional<Link> link{};  // a network to simulate on top of the backend; nothing: none
  std::shared_ptr<Clock> clock{monotonic_clock()};
  // The device of all tensors of the collectives; on CUDA, the current GPU.
  c10::DeviceType device{c10::kCPU};
  // Which calls are compared between ranks. Nothing means Compare::first_iteration over nccl,
  // Compare::always over other backends.
  std::optional<Compare> compare{};
  bool keep_log{};  // whether to log the calls for Communicator::take_log(), which empties the log
};

}  // namespace fsdp
