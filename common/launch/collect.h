#pragma once

#include <launch/rank_context.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Runs `body` on `world_size` ranks, as launch() does, and returns what it has returned on each, by
// rank: any bytes, as many as fit into memory. A rank is a process of its own, so what `body`
// captures by reference stays unchanged here. Throws std::runtime_error, the story of the rank that
// failed first; what the others have returned is lost. Throws std::logic_error if torchrun has
// started this process as one rank of several: it does not have the others.
std::vector<std::string> collect(int world_size,
                                 const std::function<std::string(const RankContext&)>& body);

}  // namespace fsdp
