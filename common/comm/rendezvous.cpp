#include <base/torch.h>
#include <comm/rendezvous.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace fsdp {

c10::intrusive_ptr<c10d::Store> rendezvous_of(const Group& group, const SharedRegion& shared,
                                              std::chrono::milliseconds timeout) {
  const std::string name =
      std::to_string(static_cast<int>(group.level)) + '/' + std::to_string(group.first);
  auto store = c10::make_intrusive<c10d::FileStore>(shared.rendezvous_path(), shared.world_size());
  store->setTimeout(timeout);
  return c10::make_intrusive<c10d::PrefixStore>(name, std::move(store));
}

}  // namespace fsdp
