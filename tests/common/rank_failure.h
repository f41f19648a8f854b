#pragma once

#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <launch/rank_exit.h>

#include <functional>
#include <stdexcept>
#include <string>

// How ranks that a test launches tell it what is wrong: a rank throws, and the test reads why it
// ended.
namespace fsdp {

// Called on a rank: ends it with `what` unless `condition` holds.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// Why the rank that failed first ended, in words; empty if no rank failed.
inline std::string failure(const LaunchResult& result) {
  return result.ok() ? "" : result.ranks[static_cast<size_t>(result.first_failure)].text();
}

// The same of ranks that run `body`, each with a communicator of these options.
inline std::string failure(int world_size, const CommunicatorOptions& options,
                           const std::function<void(Communicator&)>& body) {
  return failure(launch(world_size, [&](const RankContext& context) {
    body(*Communicator::create(context, options));
    return 0;
  }));
}

}  // namespace fsdp
