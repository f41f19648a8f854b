#include <base/memory_file.h>
#include <hosts/find_hosts.h>
#include <hosts/rendezvous.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>

namespace fsdp {
namespace {

std::string name_of_this_host() {
  char name[256]{};
  gethostname(name, sizeof name - 1);
  return name;
}

std::string name_space(const char* kind) {
  struct stat status {};
  stat((std::string("/proc/self/ns/") + kind).c_str(), &status);
  return std::to_string(status.st_ino);
}

}  // namespace

// The identity begins with the name of the host, because find_hosts() reads the name from there. It
// includes the boot id, because two clones of one machine may differ in nothing else.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return name_of_this_host() + ' ' + boot + ' ' + name_space("net") + ' ' + name_space("pid");
}

Hosts find_hosts(const LaunchedRank& self, const std::vector<std::string>& identities) {
  Hosts hosts;
  hosts.self = self;
  std::map<std::string, int> numbers;
  std::map<std::string, int> times;  // how many hosts have each name
  for (const std::string& identity : identities) {
    const auto [at, is_new] = numbers.emplace(identity, static_cast<int>(numbers.size()));
    hosts.of_rank.push_back(at->second);
    if (!is_new) continue;
    const std::string name = identity.substr(0, identity.find(' '));
    const int time = ++times[name];
    hosts.names.push_back(time == 1 ? name : name + '#' + std::to_string(time));
  }
  hosts.address = hosts.several() ? address_towards(self.host) : "127.0.0.1";
  return hosts;
}

std::string address_towards(const std::string& host) {
  const auto found = addresses_of(host, 9);
  const OpenFile socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // connect() on a datagram socket sends nothing: it only chooses a route, and with it the local
  // address.
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (connect(socket.descriptor, found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(socket.descriptor, reinterpret_cast<sockaddr*>(&local), &length) != 0)
    throw std::runtime_error("MASTER_ADDR=" + host + ": " + std::strerror(errno));
  return text_of(reinterpret_cast<sockaddr*>(&local), length);
}

}  // namespace fsdp
