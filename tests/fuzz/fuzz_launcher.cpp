#include <launch/launched.h>

#include "fuzz_target.h"

// The input has the environment variables of a launcher, in lines of NAME=VALUE.
bool fsdp::read_launcher(const std::string& input, const TemporaryFolder& folder) {
  std::vector<std::string> names;
  std::istringstream lines(input);
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find('=');
    if (end == 0 || end == std::string::npos) continue;
    names.push_back(line.substr(0, end));
    setenv(names.back().c_str(), line.c_str() + end + 1, 1);
  }
  std::optional<LaunchedRank> self;
  const bool accepted = accepts<std::invalid_argument>("", [&] { self = launched_rank(); });
  for (const std::string& name : names)
    unsetenv(name.c_str());
  if (self &&
      (self->rank < 0 || self->rank >= self->world_size || self->port == 0 || self->host.empty()))
    throw std::logic_error("variables that make no sense were accepted");
  return accepted;
}
