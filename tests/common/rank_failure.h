#pragma once

#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <launch/rank_exit.h>

#include <functional>
#include <stdexcept>
#include <string>

// For tests that launch ranks themselves: a rank reports a fault by an exception, and the test
// reads from the LaunchResult how the rank ended.
namespace fsdp {

// Called on a rank. Throws std::runtime_error(what) unless `condition` holds.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// Returns a sentence on how the rank that failed first ended; empty if no rank failed.
inline std::string failure(const LaunchResult& result) {
  return result.ok() ? "" : result.ranks[static_cast<size_t>(result.first_failure)].text();
}

// Launches `world_size` ranks that run `body`, each with a communicator of these options, and
// returns how the rank that failed first ended; empty if no rank failed.
inline std::string failure(int world_size, const CommunicatorOptions& options,
                           const std::function<void(Communicator&)>& body) {
  return failure(launch(world_size, [&](const RankContext& context) {
    body(*Communicator::create(context, options));
    return 0;
  }));
}

}  // namespace fsdp
