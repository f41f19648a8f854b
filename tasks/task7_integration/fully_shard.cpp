#include <base/todo.h>
#include <forward_hooks.h>
#include <fully_shard.h>
#include <ignored.h>

namespace fsdp {

std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                          const FullyShardOptions& options) {
  todo("fully_shard", "7.1");
}

void FullySharded::full_parameters(const ParameterVisitor& visit) const {
  todo("FullySharded::full_parameters", "7.4");
}

}  // namespace fsdp
