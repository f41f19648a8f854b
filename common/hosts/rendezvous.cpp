#include <arpa/inet.h>
#include <base/torch.h>
#include <hosts/rendezvous.h>
#include <launch/shared_region.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <stdexcept>

namespace fsdp {
namespace {

c10::intrusive_ptr<c10d::Store> file_of(const SharedRegion& shared) {
  // Checks that the file of the FileStore can be opened. Otherwise the FileStore would wait until
  // its file exists.
  if (access(shared.rendezvous_path().c_str(), R_OK | W_OK) != 0) {
    throw std::runtime_error("cannot open " + shared.rendezvous_path() + ": is /proc mounted?");
  }
  return c10::make_intrusive<c10d::FileStore>(shared.rendezvous_path(), shared.world_size());
}

}  // namespace

std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses_of(const std::string& host,
                                                            uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) throw std::runtime_error("MASTER_ADDR=" + host + ": " + gai_strerror(error));
  return {found, &freeaddrinfo};
}

std::string text_of(const sockaddr* address, socklen_t length) {
  char text[INET6_ADDRSTRLEN]{};
  getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

c10::intrusive_ptr<c10d::Store> store_of(const LaunchedRank& self) {
  c10d::TCPStoreOptions options;
  options.port = self.port;
  options.waitWorkers = false;
  options.timeout = self.timeout;
  return c10::make_intrusive<c10d::PrefixStore>(
      "fsdp/" + self.group, c10::make_intrusive<c10d::TCPStore>(self.host, options));
}

c10::intrusive_ptr<c10d::Store> rendezvous_of(const RankContext& context, const Group& group,
                                              const std::string& purpose,
                                              std::chrono::milliseconds timeout) {
  const std::string name = purpose + '/' + std::to_string(group.communicator) + '/' +
                           std::to_string(static_cast<int>(group.level)) + '/' +
                           std::to_string(group.first);
  auto store =
      context.on_one_host(group) ? file_of(*context.shared) : store_of(context.hosts->self);
  store->setTimeout(timeout);
  return c10::make_intrusive<c10d::PrefixStore>(name, std::move(store));
}

}  // namespace fsdp
