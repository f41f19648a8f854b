#include <comm/hosts.h>
#include <comm/mapping.h>
#include <comm/rendezvous.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

// The name comes first: of clones of one machine, only the number of the boot differs.
std::string Hosts::identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return name_of_this_host() + ' ' + boot + ' ' + name_space("net") + ' ' + name_space("pid");
}

Hosts Hosts::of(const StartedRank& self, const std::vector<std::string>& identities) {
  Hosts hosts;
  hosts.self = self;
  std::map<std::string, int> numbers;
  std::map<std::string, int> times;  // that a name has come
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

Hosts Hosts::without_others(const std::vector<int>& ranks, const StartedRank& self) const {
  Hosts left;
  left.self = self;
  left.address = address;
  std::map<int, int> numbers;
  for (const int rank : ranks) {
    const int former = of_rank[static_cast<size_t>(rank)];
    const auto [at, is_new] = numbers.emplace(former, static_cast<int>(numbers.size()));
    left.of_rank.push_back(at->second);
    if (is_new) left.names.push_back(name_of(rank));
  }
  return left;
}

std::vector<int> Hosts::ranks_of(int host) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < of_rank.size(); ++rank)
    if (of_rank[rank] == host) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

bool Hosts::within_one(const Group& group) const {
  for (int rank = 1; rank < group.size; ++rank)
    if (of_rank[static_cast<size_t>(group.world_rank(rank))] !=
        of_rank[static_cast<size_t>(group.world_rank(0))])
      return false;
  return true;
}

std::string Hosts::name_of(int rank) const {
  return names[static_cast<size_t>(of_rank[static_cast<size_t>(rank)])];
}

std::string Hosts::text() const {
  std::string text;
  for (size_t host = 0; host < names.size(); ++host)
    text += (host > 0 ? "; " : "") + names[host] + ": " + listed(ranks_of(static_cast<int>(host)));
  return text;
}

std::string address_towards(const std::string& host) {
  const auto found = addresses_of(host, 9);
  const OpenFile socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // A datagram's socket sends nothing when it connects; it only takes a route.
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (connect(socket.descriptor, found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(socket.descriptor, reinterpret_cast<sockaddr*>(&local), &length) != 0)
    throw std::runtime_error("MASTER_ADDR=" + host + ": " + std::strerror(errno));
  return text_of(reinterpret_cast<sockaddr*>(&local), length);
}

}  // namespace fsdp
