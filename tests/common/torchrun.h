#pragma once

#include <launch/rank_context.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "set_variables.h"

// Does for tests what torchrun does, without Python and without a fixed port.
namespace fsdp {

// Returns the environment that torchrun sets for a rank if all ranks are on one machine.
Variables torchrun_variables(int rank, int world_size, uint16_t port);

// A c10d::TCPStore that listens in a process of its own. The destructor ends the process.
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

// A port of this machine on which no process listens, and which the kernel assigns to no other
// socket while this object lives. A store can be hosted on it.
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
  std::vector<int> statuses;  // status of each process, by rank, as waitpid() reports it
  // The text that all processes together printed on stderr, without the lines that announce a wait
  // for other ranks to join: such a line depends on how fast a name server answers LibTorch.
  std::string said;
};

// The action of torchrun() when a process ends with a failure: it sends SIGTERM to the other ones,
// or lets them notice the failure themselves.
enum class OfFailure { told, left_to_notice };

// Starts `world_size` processes that call start(world_size, body, "program") in torchrun's
// environment with `changes`, and waits for all of them. SIGALRM ends a process after 30 s.
Ended torchrun(int world_size, uint16_t port, const std::function<int(const RankContext&)>& body,
               const Variables& changes = {}, OfFailure others = OfFailure::told);

}  // namespace fsdp
