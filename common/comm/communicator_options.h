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

// A fault put in by hand: `rank` leaves out its call number `at`, or is killed there.
struct Fault {
  enum class Kind { skip, kill };
  Kind kind;
  int rank;     // of the world
  uint64_t at;  // of the calls that it makes over all its communicators: 0, 1, 2, ...
};

// Which calls are compared between ranks. A rank that waits for a compared call waits until the
// others have made it too; the transports of the CPU wait for that in any case, NCCL does not.
enum class Compare { always, first_iteration, never };

struct CommunicatorOptions {
  // auto, shm, gloo or nccl. auto: on CUDA nccl if every rank has a GPU of its own; else shm
  // between forked ranks and gloo between others, on CUDA through copies on the host.
  std::string backend{"auto"};
  std::chrono::milliseconds timeout{kDefaultTimeout};  // of every wait for another rank
  std::optional<Fault> fault{};
  std::optional<Link> link{};  // simulated, on top of the backend
  std::shared_ptr<Clock> clock{monotonic_clock()};
  c10::DeviceType device{c10::kCPU};  // of all tensors; of CUDA, the GPU that is the current device
  std::optional<Compare> compare{};   // by default the first iteration over nccl, else always
  bool keep_log{};  // of calls, for Communicator::take_log(); it grows until it is taken
};

}  // namespace fsdp
