#include "network.h"

#include <arpa/inet.h>
#include <base/processes.h>
#include <base/write_all.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <system_error>

namespace fsdp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostHosts = 26;
constexpr int kPacketBytes = 9000;
// The only descriptor above stderr that the emulator's process inherits. It is a pipe to the
// creator of the Network: each host's first process writes "." when its host is ready, and a
// process that fails writes why. Afterwards a host's first process has another pipe in its place,
// which closes when the emulator's process ends.
constexpr int kPipe = 3;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::system_error(errno, std::generic_category(), what);
}

int handle_of(pid_t process) {
  return static_cast<int>(syscall(SYS_pidfd_open, process, 0));
}

// Makes the devices lo and wire0 in the network namespace of this process. Returns the descriptor
// through which wire0's packets are read and written.
int make_devices(const std::string& address) {
  const int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  require(tun >= 0, "/dev/net/tun");
  const int any = socket(AF_INET, SOCK_DGRAM, 0);
  const auto set = [&](const char* device, unsigned long what, const auto& value) {
    ifreq request{};
    std::strcpy(request.ifr_name, device);
    std::memcpy(&request.ifr_ifru, &value, sizeof value);
    require(ioctl(what == TUNSETIFF ? tun : any, what, &request) == 0, device);
  };
  set("wire0", TUNSETIFF, short{IFF_TUN | IFF_NO_PI});
  set("wire0", SIOCSIFADDR, sockaddr_in{AF_INET, 0, {inet_addr(address.c_str())}, {}});
  set("wire0", SIOCSIFNETMASK, sockaddr_in{AF_INET, 0, {inet_addr("255.255.255.0")}, {}});
  set("wire0", SIOCSIFMTU, kPacketBytes);
  // By default, the transmit queue of a device is shorter than TCP's largest window, so the device
  // would drop packets.
  set("wire0", SIOCSIFTXQLEN, 10000);
  for (const char* device : {"lo", "wire0"})
    set(device, SIOCSIFFLAGS, short{IFF_UP | IFF_RUNNING});
  close(any);
  return tun;
}

void mount_at(const char* where, const char* what, const char* type, unsigned long flags) {
  require(mount(what, where, type, flags, nullptr) == 0, std::string("mount ") + where);
}

void make_files(int host, int hosts) {
  require(unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC) == 0, "unshare");
  require(sethostname(Network::name(host).data(), Network::name(host).size()) == 0, "sethostname");
  mount_at("/", "none", nullptr, MS_REC | MS_PRIVATE);
  mount_at("/proc", "tmpfs", "tmpfs", 0);  // a temporary file system for the new /etc/hosts
  std::ofstream names("/proc/hosts");
  names << "127.0.0.1 localhost\n";
  for (int other = 0; other < hosts; ++other)
    names << Network::address(other) << ' ' << Network::name(other) << '\n';
  names.close();
  mount_at("/etc/hosts", "/proc/hosts", nullptr, MS_BIND);
  require(umount2("/proc", MNT_DETACH) == 0, "umount /proc");
  mount_at("/proc", "proc", "proc", 0);
  mount_at("/dev/shm", "tmpfs", "tmpfs", 0);
}

// Enters the remaining namespaces of the host whose first process is `init`, runs `body` there, and
// ends this process with the value of `body`. The process was forked into the host's pid namespace.
[[noreturn]] void run_on(int init, const std::string& folder,
                         const std::function<int()>& body) noexcept {
  require(setns(init, CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC) == 0, "setns");
  require(chdir(folder.c_str()) == 0, folder);
  setsid();
  const int code = body();
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

// Called in the emulator's process. Makes the hosts and returns the descriptors of their devices.
std::vector<pollfd> Network::make(State* states, int hosts) {
  int lifeline[2];
  require(pipe(lifeline) == 0, "pipe");
  const int own = handle_of(getpid());
  std::vector<pollfd> ends;
  for (int host = 0; host < hosts; ++host) {
    require(unshare(CLONE_NEWNET | CLONE_NEWPID) == 0, "unshare");
    ends.push_back({make_devices(address(host)), POLLIN, 0});
    const pid_t init = fork();
    require(init >= 0, "fork");
    if (init == 0) {
      make_files(host, hosts);
      write_all(kPipe, ".");
      dup2(lifeline[0], kPipe);
      close_range(kPipe + 1, ~0U, 0);
      signal(SIGCHLD, SIG_IGN);  // the kernel then reaps the orphaned processes of this host
      char none;
      (void)!read(kPipe, &none, 1);
      _exit(0);
    }
    states[host].init = init;
    require(setns(own, CLONE_NEWPID) == 0, "setns");
  }
  return ends;
}

void Network::carry(State* states, std::vector<pollfd> ends, const WireOptions& options) {
  struct Packet {
    size_t from, to;
    std::vector<char> bytes;
  };
  // The packets that are not yet delivered, sorted by the time of their delivery.
  std::multimap<Clock::time_point, Packet> on_their_way;
  std::mt19937_64 random(options.seed);
  std::bernoulli_distribution lost(options.loss);
  const auto cut = [&](size_t from, size_t to) { return states[from].cut || states[to].cut; };

  const auto take = [&](size_t from, const std::vector<char>& packet) {
    const bool to_a_host = packet.size() >= 20 && packet[0] >> 4 == 4 &&
                           std::memcmp(&packet[16], "\x0a\x4d\x00", 3) == 0;
    const size_t to = to_a_host ? static_cast<unsigned char>(packet[19]) - size_t{1} : ends.size();
    if (to >= ends.size()) return;
    if (!lost(random) && !cut(from, to))
      on_their_way.insert({Clock::now() + options.delay, {from, to, packet}});
  };

  for (;;) {
    timespec limit{};
    if (!on_their_way.empty()) {
      const auto left = on_their_way.begin()->first - Clock::now();
      const auto count = std::max(left, Clock::duration(0)).count();
      limit = {count / 1'000'000'000, count % 1'000'000'000};
    }
    ppoll(ends.data(), ends.size(), on_their_way.empty() ? nullptr : &limit, nullptr);
    for (size_t host = 0; host < ends.size(); ++host) {
      for (int i = 0; i < 64; ++i) {  // reads at most 64 packets of a host at a time
        std::vector<char> packet(kPacketBytes);
        const ssize_t bytes = read(ends[host].fd, packet.data(), packet.size());
        if (bytes < 0) break;
        packet.resize(static_cast<size_t>(bytes));
        take(host, packet);
      }
    }
    while (!on_their_way.empty() && on_their_way.begin()->first <= Clock::now()) {
      const auto& [from, to, bytes] = on_their_way.begin()->second;
      if (!cut(from, to)) (void)!write(ends[to].fd, bytes.data(), bytes.size());
      on_their_way.erase(on_their_way.begin());
    }
  }
}

std::string Network::unavailable() {
  try {
    const Network hosts(1);
    return "";
  } catch (const std::runtime_error& error) {
    return std::string("no hosts can be made here: ") + error.what();
  }
}

Network::Network(int hosts, const WireOptions& options)
    : Network() {  // delegates, so that the destructor runs if the rest of this constructor throws
  require_one_thread("Network");
  if (hosts < 1 || hosts > kMostHosts) throw std::runtime_error("a Network has 1 to 26 hosts");
  void* shared = mmap(nullptr, sizeof(State) * kMostHosts, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int told[2];
  require(shared != MAP_FAILED && pipe(told) == 0, "the memory of a Network");
  states_ = static_cast<State*>(shared);
  const pid_t self = getpid();
  wire_ = fork();
  require(wire_ >= 0, "fork");
  if (wire_ == 0) {
    end_with(self);
    dup2(told[1], kPipe);
    close_range(kPipe + 1, ~0U, 0);
    try {
      const std::vector<pollfd> ends = make(states_, hosts);
      close(kPipe);
      carry(states_, ends, options);
    } catch (const std::exception& error) {
      // The exception was thrown in this process, the emulator, or in a host's first process.
      write_all(kPipe, error.what());
    }
    _exit(1);
  }
  close(told[1]);
  std::string text;
  for (char letter; read(told[0], &letter, 1) == 1;)
    text += letter;
  close(told[0]);
  for (int host = 0; host < hosts; ++host)
    inits_.push_back(handle_of(states_[host].init));
  if (text != std::string(inits_.size(), '.')) throw std::runtime_error(text);
}

Network::~Network() {
  for (int host = 0; host < static_cast<int>(inits_.size()); ++host) {
    end(host);
    close(inits_[host]);
  }
  if (wire_ > 0 && kill(wire_, SIGKILL) == 0) waitpid(wire_, nullptr, 0);
  if (states_ != nullptr) munmap(states_, sizeof(State) * kMostHosts);
}

pid_t Network::start(int host, const std::function<int()>& body) {
  const int init = inits_.at(static_cast<size_t>(host));
  const std::string folder = std::filesystem::current_path();
  const int own = handle_of(getpid());
  std::fflush(nullptr);
  // After setns(), the processes that this process forks belong to the host.
  const bool enters = setns(init, CLONE_NEWPID) == 0;
  const pid_t process = enters ? fork() : -1;
  if (process == 0) run_on(init, folder, body);
  const int error = errno;
  setns(own, CLONE_NEWPID);
  close(own);
  errno = error;
  require(process > 0, "no process can be started on " + name(host));
  return process;
}

void Network::end(int host) {
  cut(host);
  syscall(SYS_pidfd_send_signal, inits_[host], SIGKILL, nullptr, 0);
}

}  // namespace fsdp
