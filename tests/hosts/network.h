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

// The effect of the network on packets between two hosts. It does not reorder the packets that one
// host sends.
struct WireOptions {
  std::chrono::microseconds delay{};  // time that a packet takes from one host to another
  double loss{};                      // fraction of the packets that are lost, 0 to 1
  uint64_t seed{1};                   // seed of the generator that chooses the lost packets
};

// Emulates several hosts on one machine, for tests of training over several hosts.
// - A host has its own ports, loopback, processes, /proc, /dev/shm, /etc/hosts and host name. All
//   other files are the machine's.
// - Its device wire0 carries IPv4 packets of at most 9000 bytes to the other hosts, and to nothing
//   else.
// - All processes of all hosts end with this object, or with the thread that created it. The caller
//   must wait for the processes that start() returns.
class Network {
 public:
  // Returns why hosts cannot be made on this machine, for GTEST_SKIP(); empty if they can. Making
  // hosts needs root.
  static std::string unavailable();

  // Makes 1 to 26 hosts. Throws std::logic_error if this process has other threads, and
  // std::runtime_error, which states what failed, if the hosts cannot be made.
  explicit Network(int hosts, const WireOptions& options = {});
  ~Network();  // the destructor ends all hosts
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Return the IPv4 address and the name of emulated host `host`. Every host resolves the names of
  // all hosts to their addresses.
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  static std::string name(int host) {
    return std::string("host-") + "abcdefghijklmnopqrstuvwxyz"[host];
  }

  // Forks a process that runs `body` on emulated host `host`, as the leader of a new session. It
  // ends by _exit() with the value of `body`; an exception aborts it. Returns its process id in the
  // caller's namespace, so the caller can wait for it as for any child. Throws std::system_error if
  // the host has ended.
  pid_t start(int host, const std::function<int()>& body);

  // From now on, no packet leaves or reaches the host. No process gets an error or sees a
  // connection end because of this.
  void cut(int host) { states_[host].cut = true; }

  // Ends the host as a power failure would: cuts it off, and the kernel kills all its processes.
  void end(int host);

 private:
  struct State {
    std::atomic<bool> cut;
    // Process id of the host's first process. The host's other processes end with this process.
    std::atomic<pid_t> init;
  };

  Network() = default;
  static std::vector<pollfd> make(State* states, int hosts);
  [[noreturn]] static void carry(State* states, std::vector<pollfd> ends, const WireOptions&);

  State* states_{};         // a State for each host, in memory shared with the emulator
  std::vector<int> inits_;  // pid file descriptors of the hosts' first processes
  pid_t wire_{};            // process id of the emulator
};

}  // namespace fsdp
