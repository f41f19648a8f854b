#pragma once

#include <base/mapping.h>
#include <base/memory_file.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp {

// From one rank to the test's own process. It is a file in memory that both hold open: what a rank
// has sent is still there when the rank has died, and a sender never waits for the reader.
class Channel {
 public:
  // In the rank, from any thread. Throws std::system_error.
  void send(const nlohmann::json& frame);

  // In the test's process, after the rank has ended: all frames that were sent whole, in order.
  std::vector<nlohmann::json> frames() const;

 private:
  OpenFile file_{memory_file("fsdp-observations")};  // made before the fork
  std::mutex mutex_;
};

}  // namespace fsdp
