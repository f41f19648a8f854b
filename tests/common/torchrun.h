#pragma once

#include <launch/rank_context.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "set_variables.h"

// What torchrun does, for tests, which need no Python and no port of their own.
namespace fsdp {

// The environment that torchrun gives a rank on one machine.
Variables torchrun_variables(int rank, int world_size, uint16_t port);

// A c10d::TCPStore in a process of its own, which ends with this object.
class HostedStore {
 public:
  HostedStore();
  ~HostedStore();
  HostedStore(const HostedStore&) = delete;
  HostedStore& operator=(const HostedStore&) = delete;

  uint16_t port() const { return port_; }

 private:
  int process_{};
  uint16_t port_{};
};

// A port of this machine on which nobody listens and which nobody else is given; a store can be
// hosted there.
class ReservedPort {
 public:
  ReservedPort();
  ~ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  uint16_t number() const { return number_; }

 private:
  int socket_;
  uint16_t number_;
};

struct Ended {
  std::vector<int> statuses;  // by rank, as waitpid() gives them
  // On stderr, by all processes together; but not that a rank waits for others to come, which it
  // says where LibTorch looks up names and the name server is slow.
  std::string said;
};

// Starts `world_size` processes that call start(world_size, body, "program") with torchrun's
// environment, in which `changes` come last. When one ends with a failure, sends SIGTERM to the
// others, unless they are to notice by themselves. A process that is still there after 30 s is
// ended by SIGALRM.
enum class OfFailure { told, left_to_notice };
Ended torchrun(int world_size, uint16_t port, const std::function<int(const RankContext&)>& body,
               const Variables& changes = {}, OfFailure others = OfFailure::told);

}  // namespace fsdp
