#pragma once

#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp {

// What one rank tells the test's process: a memory file that both hold open, so that whatever was
// sent stays when the rank dies, and the sender never waits for the reader. Frames are a length and
// a value in CBOR.
class Channel {
 public:
  Channel();  // to be called before the fork
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void send(const nlohmann::json& frame);      // from any thread
  std::vector<nlohmann::json> frames() const;  // a last one that was cut off is left out

 private:
  int file_;
  std::mutex mutex_;
};

}  // namespace fsdp
