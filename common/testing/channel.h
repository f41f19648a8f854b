#pragma once

#include <base/mapping.h>
#include <base/memory_file.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp {

// Sends frames (JSON values) from one rank to the test's own process, through a file in memory that
// both processes hold open. So frames survive the end of the rank that sent them, and the rank
// never waits for the reader.
class Channel {
 public:
  // Call send() in the rank, from any thread. Throws std::system_error if the frame can't be
  // written.
  void send(const nlohmann::json& frame);

  // Call frames() in the test's process after the rank has ended. Returns all frames that were sent
  // completely, in order.
  std::vector<nlohmann::json> frames() const;

 private:
  // The file of the frames, which is made before the rank is forked.
  OpenFile file_{memory_file("fsdp-observations")};
  std::mutex mutex_;
};

}  // namespace fsdp
