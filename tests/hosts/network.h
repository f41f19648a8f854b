#pragma once

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// What happens to packets between two hosts. Those of one host stay in their order.
struct WireOptions {
  std::chrono::microseconds delay{};  // one way
  double loss{};                      // the fraction of the packets that is lost, 0 to 1
  uint64_t seed{1};                   // of the generator that chooses the lost packets
};

// Several hosts on one machine, for tests of training over several hosts. A host has its own ports,
// loopback, processes, /proc and /dev/shm; the other files are the machine's. IPv4 packets of at
// most 9000 bytes go from its device wire0 to other hosts, and nowhere else. Nothing survives this
// object or the thread that made it; but somebody has to wait for what start() returns.
class Network {
 public:
  // Why hosts cannot be made here, for GTEST_SKIP(); empty if they can. It takes root.
  static std::string unavailable();

  // At most 26. Throws std::logic_error if this process has other threads, std::runtime_error with
  // what failed.
  explicit Network(int hosts, const WireOptions& options = {});
  ~Network();  // ends all
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Every host finds the address of each name.
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  static std::string name(int host) {
    return std::string("host-") + "abcdefghijklmnopqrstuvwxyz"[host];
  }

  // Forks a process that runs `body` on the host, leads a session there, and leaves by _exit(its
  // value); an exception aborts it. Returns its id in this process, which waits for it as for any
  // child. Throws std::system_error if the host has ended.
  pid_t start(int host, const std::function<int()>& body);

  // From now on no packet leaves or reaches the host. Nobody sees an error or the end of a
  // connection.
  void cut(int host) { states_[host].cut = true; }

  // As if its power failed: cuts it and has the kernel kill all its processes.
  void end(int host);

 private:
  struct State {
    std::atomic<bool> cut;
    std::atomic<pid_t> init;  // the first process; the others of the host end with it
  };

  Network() = default;
  static std::vector<pollfd> make(State* states, int hosts);
  [[noreturn]] static void carry(State* states, std::vector<pollfd> ends, const WireOptions&);

  State* states_{};         // [hosts], which the wire's process shares
  std::vector<int> inits_;  // handles of each host's first process
  pid_t wire_{};
};

}  // namespace fsdp
