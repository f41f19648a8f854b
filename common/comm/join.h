#pragma once

#include <comm/shared_region.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace fsdp {

// What torchrun tells a process that it has started as a rank.
struct StartedRank {
  int rank{};
  int world_size{1};
  std::string host;   // of the store through which the ranks find one another
  uint16_t port{};    // likewise
  bool hosted{};      // the store is there; else rank 0 hosts it
  std::string group;  // of no other ranks that use the same store, and of no earlier start
  std::chrono::milliseconds timeout{300'000};  // of each wait for another rank
};

// What the environment says: RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; none
// if neither RANK nor WORLD_SIZE is set. Throws std::invalid_argument naming a variable that is
// missing or makes no sense, or when the ranks are on several machines.
std::optional<StartedRank> started_rank();

// The memory that this rank shares with the others, once all have come; without arenas. Calls torch
// in a process of its own alone, so the caller may fork. Throws std::runtime_error naming the rank
// and the store.
std::shared_ptr<SharedRegion> join(const StartedRank& self);

}  // namespace fsdp
