#include <base/torch.h>
#include <comm/rendezvous.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <stdexcept>

namespace fsdp {

c10::intrusive_ptr<c10d::Store> rendezvous_of(const Group& group, const SharedRegion& shared,
                                              std::chrono::milliseconds timeout) {
  const std::string name = std::to_string(group.communicator) + '/' +
                           std::to_string(static_cast<int>(group.level)) + '/' +
                           std::to_string(group.first);
  if (access(shared.rendezvous_path().c_str(), R_OK | W_OK) !=
      0) {  // a FileStore would wait for it
    throw std::runtime_error("cannot open " + shared.rendezvous_path() + ": is /proc mounted?");
  }
  auto store = c10::make_intrusive<c10d::FileStore>(shared.rendezvous_path(), shared.world_size());
  store->setTimeout(timeout);
  return c10::make_intrusive<c10d::PrefixStore>(name, std::move(store));
}

}  // namespace fsdp
