#include "wire.h"

#include <arpa/inet.h>
#include <base/write_all.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <random>
#include <system_error>

namespace fsdp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTold = 3;
constexpr int kFirstOther = 4;
constexpr int kPacketBytes = 9000;

void require(bool condition, const char* what) {
  if (!condition) throw std::system_error(errno, std::generic_category(), what);
}

// The devices of the network namespace that this process is in. Returns the other end of wire0.
int make_devices(int host) {
  const int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  require(tun >= 0, "/dev/net/tun");
  const int control = socket(AF_INET, SOCK_DGRAM, 0);
  const auto set = [](int file, unsigned long what, const char* device, const auto& fill) {
    ifreq request{};
    std::strcpy(request.ifr_name, device);
    fill(request);
    require(ioctl(file, what, &request) == 0, device);
  };
  const auto address = [](const std::string& text) {
    return [text](ifreq& request) {
      auto* into = reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
      into->sin_family = AF_INET;
      inet_pton(AF_INET, text.c_str(), &into->sin_addr);
    };
  };
  const auto up = [](ifreq& request) { request.ifr_flags = IFF_UP | IFF_RUNNING; };
  set(tun, TUNSETIFF, "wire0", [](ifreq& request) { request.ifr_flags = IFF_TUN | IFF_NO_PI; });
  set(control, SIOCSIFADDR, "wire0", address(Hosts::address(host)));
  set(control, SIOCSIFNETMASK, "wire0", address("255.255.255.0"));
  set(control, SIOCSIFMTU, "wire0", [](ifreq& request) { request.ifr_mtu = kPacketBytes; });
  // Else a burst that fits TCP's window loses packets in the device.
  set(control, SIOCSIFTXQLEN, "wire0", [](ifreq& request) { request.ifr_qlen = 10000; });
  set(control, SIOCSIFFLAGS, "wire0", up);
  set(control, SIOCSIFFLAGS, "lo", up);
  close(control);
  return tun;
}

void mount_own(const char* source, const char* at, const char* type, unsigned long flags) {
  require(mount(source, at, type, flags, nullptr) == 0, at);
}

// In the host's first process, which is in its pid namespace and network namespace.
void make_files(int host, int hosts) {
  require(unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC) == 0, "unshare");
  require(sethostname(Hosts::name(host).data(), Hosts::name(host).size()) == 0, "sethostname");
  mount_own("none", "/", nullptr, MS_REC | MS_PRIVATE);
  mount_own("tmpfs", "/proc", "tmpfs", 0);  // for a moment, as a place for a file
  std::ofstream names("/proc/hosts");
  names << "127.0.0.1 localhost\n";
  for (int other = 0; other < hosts; ++other)
    names << Hosts::address(other) << ' ' << Hosts::name(other) << '\n';
  names.close();
  mount_own("/proc/hosts", "/etc/hosts", nullptr, MS_BIND);
  require(umount2("/proc", MNT_DETACH) == 0, "/proc");
  mount_own("proc", "/proc", "proc", 0);
  mount_own("tmpfs", "/dev/shm", "tmpfs", 0);
}

// The host's first process. `lifeline` ends with the wire's process.
[[noreturn]] void run_init(int host, int hosts, int lifeline) {
  try {
    make_files(host, hosts);
  } catch (const std::exception& error) {
    write_all(kTold, error.what());
    _exit(1);
  }
  write_all(kTold, ".");
  dup2(lifeline, kTold);
  close_range(kFirstOther, ~0U, 0);
  signal(SIGCHLD, SIG_IGN);  // orphans need nobody who waits for them
  char none;
  while (read(kTold, &none, 1) != 0) {
  }
  _exit(0);
}

// Returns the other ends of their devices.
std::vector<int> make_hosts(HostState* states, int hosts) {
  int lifeline[2];
  require(pipe(lifeline) == 0, "pipe");
  const int own = open("/proc/self/ns/pid", O_RDONLY);
  std::vector<int> tuns;
  for (int host = 0; host < hosts; ++host) {
    require(unshare(CLONE_NEWNET | CLONE_NEWPID) == 0, "unshare");
    tuns.push_back(make_devices(host));
    const pid_t init = fork();
    require(init >= 0, "fork");
    if (init == 0) run_init(host, hosts, lifeline[0]);
    states[host].init = init;
    require(setns(own, CLONE_NEWPID) == 0, "setns");
  }
  return tuns;
}

class Wire {
 public:
  Wire(HostState* states, const std::vector<int>& tuns, const WireOptions& options)
      : states_(states), options_(options), random_(options.seed), lost_(options.loss) {
    for (const int tun : tuns)
      ends_.push_back({tun, POLLIN, 0});
    senders_.resize(tuns.size());
  }

  [[noreturn]] void carry() {
    for (;;) {
      wait();
      for (size_t host = 0; host < ends_.size(); ++host) {
        take_from(host);
        deliver_from(host);
      }
    }
  }

 private:
  struct Packet {
    Clock::time_point due;
    size_t to;
    uint32_t turns;  // of both hosts, when it was sent
    std::vector<char> bytes;
  };
  struct Sender {
    std::deque<Packet> on_their_way;
    Clock::time_point free_at;  // when all that it has sent is on the wire
  };

  uint32_t turns(size_t from, size_t to) const { return states_[from].turns + states_[to].turns; }

  // For a packet or the time at which one is due.
  void wait() {
    auto due = Clock::time_point::max();
    for (const Sender& sender : senders_)
      if (!sender.on_their_way.empty()) due = std::min(due, sender.on_their_way.front().due);
    timespec left{};
    if (const auto now = Clock::now(); due > now) {
      const auto all = std::chrono::nanoseconds(due - now).count();
      left = {all / 1'000'000'000, all % 1'000'000'000};
    }
    const bool for_ever = due == Clock::time_point::max();
    ppoll(ends_.data(), ends_.size(), for_ever ? nullptr : &left, nullptr);
  }

  // The host to which an IPv4 packet goes; -1 if it goes to none.
  int destination(const char* packet, ssize_t bytes) const {
    if (bytes < 20 || packet[0] >> 4 != 4 || std::memcmp(packet + 16, "\x0a\x4d\x00", 3) != 0)
      return -1;
    const int host = static_cast<unsigned char>(packet[19]) - 1;
    return host < static_cast<int>(ends_.size()) ? host : -1;
  }

  void take_from(size_t from) {
    char packet[kPacketBytes];
    for (int i = 0; i < 64; ++i) {  // then it is another host's turn
      const ssize_t bytes = read(ends_[from].fd, packet, sizeof packet);
      if (bytes < 0) return;
      const int host = destination(packet, bytes);
      if (host < 0) continue;
      states_[from].bytes_sent += bytes;
      const auto to = static_cast<size_t>(host);
      const auto now = Clock::now();
      auto& free_at = senders_[from].free_at;
      free_at = std::max(free_at, now);
      if (options_.bytes_per_second > 0) {
        const std::chrono::duration<double> takes(bytes / options_.bytes_per_second);
        free_at += std::chrono::duration_cast<Clock::duration>(takes);
      }
      const uint32_t seen = turns(from, to);
      const bool cut = (states_[from].turns | states_[to].turns) % 2 != 0;
      if (lost_(random_) || cut) continue;
      senders_[from].on_their_way.push_back(
          {free_at + options_.delay, to, seen, {packet, packet + bytes}});
    }
  }

  void deliver_from(size_t from) {
    auto& packets = senders_[from].on_their_way;
    for (const auto now = Clock::now(); !packets.empty() && packets.front().due <= now;
         packets.pop_front()) {
      const Packet& packet = packets.front();
      if (packet.turns == turns(from, packet.to))  // neither was cut since
        (void)!write(ends_[packet.to].fd, packet.bytes.data(), packet.bytes.size());
    }
  }

  HostState* states_;
  WireOptions options_;
  std::mt19937_64 random_;
  std::bernoulli_distribution lost_;
  std::vector<pollfd> ends_;  // of the hosts' devices
  std::vector<Sender> senders_;
};

}  // namespace

void run_wire(HostState* states, int hosts, const WireOptions& options, int told) {
  dup2(told, kTold);
  close_range(kFirstOther, ~0U, 0);
  try {
    Wire wire(states, make_hosts(states, hosts), options);
    close(kTold);
    wire.carry();
  } catch (const std::exception& error) {
    write_all(kTold, error.what());
  }
  _exit(1);
}

}  // namespace fsdp
