#pragma once

#include <comm/launcher.h>

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

}  // namespace fsdp
