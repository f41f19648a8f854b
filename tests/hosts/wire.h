#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "hosts.h"

namespace fsdp {

inline constexpr int kMostHosts = 26;

// What the wire and the test's process share about a host.
struct HostState {
  std::atomic<uint32_t> turns;  // how often it was cut or mended: it is cut while this is odd
  std::atomic<int64_t> bytes_sent;
  std::atomic<pid_t> init;  // the first process, with whose end the host ends
};

// Makes the hosts and carries their packets, for ever; the hosts end with this process. All
// descriptors but the first three and `told` are closed. Writes a '.' to `told` for each host that
// is ready, or what went wrong; `told` is closed when all has been said.
[[noreturn]] void run_wire(HostState* states, int hosts, const WireOptions& options, int told);

}  // namespace fsdp
