#pragma once

#include <launch/rank_context.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Runs `body` on `world_size` ranks, as launch() does, and returns what `body` has returned on each
// rank, by rank: any bytes, as many as fit into memory. A rank is a process of its own, so what
// `body` captures by reference does not change in the caller. Throws
// - std::runtime_error with the error of the rank that failed first; the results of the other ranks
//   are lost;
// - std::logic_error if a launcher has started this process as a rank (launched_rank()), because
//   this process cannot receive the results of the other ranks.
std::vector<std::string> collect(int world_size,
                                 const std::function<std::string(const RankContext&)>& body);

}  // namespace fsdp
