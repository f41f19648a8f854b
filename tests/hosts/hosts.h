#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// Several hosts on one machine, for tests of training over several hosts.
namespace fsdp {

// What happens to a packet between two hosts; packets of one host stay in their order.
struct WireOptions {
  std::chrono::microseconds delay{};  // one way
  double loss{};                      // the fraction of the packets that is lost, 0 to 1
  double bytes_per_second{};          // of what each host sends; 0: no limit
  uint64_t seed{1};                   // of the generator that chooses the lost packets
};

struct HostState;

// Hosts have names, "host-a" and so on, and addresses, 10.77.0.1 and so on; each knows the names of
// all. A host has its own ports, loopback device, /proc, /dev/shm and process ids, and the files of
// this machine. IPv4 packets of at most 9000 bytes go from a host's device, wire0, to other hosts
// and nowhere else. Nothing survives this object or the thread that made it.
class Hosts {
 public:
  // Why hosts cannot be made here, for GTEST_SKIP(); empty if they can. It takes root.
  static std::string unavailable();

  // At most 26. This process must have one thread, else std::logic_error; std::runtime_error says
  // what failed.
  explicit Hosts(int hosts, const WireOptions& options = {});
  ~Hosts();  // end() for all
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  static std::string address(int host);
  static std::string name(int host);

  // Forks a process that runs `body` on the host, leads a session there, and leaves by _exit(its
  // value), or by _exit(1) after an exception, which it prints. Returns its id in this process,
  // which waits for it as for any child. Throws std::system_error if the host has ended.
  pid_t start(int host, const std::function<int()>& body);

  // From now on packets from and to the host vanish; those that are on their way, too. No process
  // sees an error or the end of a connection. Both may be called again.
  void cut(int host);
  void mend(int host);

  // As if its power failed: cuts it, and kills every process that it has. Returns when all have
  // ended, but leaves it to the caller to wait for those of start(). It cannot be started again.
  void end(int host);

  // Of all packets that the host has sent to other hosts, with their headers, lost or not.
  int64_t bytes_sent(int host) const;

 private:
  void stop();

  HostState* states_;       // [hosts], which the wire shares
  std::vector<int> inits_;  // handles of the first processes
  pid_t wire_;
};

}  // namespace fsdp
