#pragma once

#include <comm/shared_region.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace fsdp {

// What a process knows of itself if torchrun has started it as a rank.
struct StartedRank {
  int rank{};
  int world_size{1};
  std::string host;   // of the store through which the ranks find one another
  uint16_t port{};    // likewise
  bool hosted{};      // whether another process hosts the store; else rank 0 does
  std::string group;  // names these ranks, and no others that use the store now or used it before
  std::chrono::milliseconds timeout{kDefaultTimeout};  // of each wait for another rank
  std::chrono::milliseconds patience{5'000};           // after which a wait is told
};

// Reads RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT from the environment.
// Returns nothing if neither RANK nor WORLD_SIZE is set. Throws std::invalid_argument if a variable
// is missing or makes no sense (it names the variable), or if the ranks are on several machines.
std::optional<StartedRank> started_rank();

// Waits until all ranks have come, and returns the memory that this rank shares with them, which
// has no arenas. If that takes longer than `patience`, says once by `tell` for whom it waits. Calls
// torch only in a process of its own, so the caller may fork afterwards. Throws std::runtime_error,
// which names the rank, the store and the rank that has not come.
std::shared_ptr<SharedRegion> join(const StartedRank& self,
                                   const std::function<void(const std::string&)>& tell = {});

}  // namespace fsdp
