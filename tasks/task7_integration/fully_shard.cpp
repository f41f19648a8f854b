#include <base/todo.h>
#include <forward_hooks.h>
#include <fully_shard.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace fsdp {

std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy) {
  todo("plan_units", "7.1");
}

ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size) {
  todo("plan_layout", "7.1");
}

std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                          const FullyShardOptions& options) {
  todo("fully_shard", "7.1");
}

void FullySharded::full_parameters(const ParameterVisitor& visit) const {
  todo("FullySharded::full_parameters", "7.4");
}

}  // namespace fsdp
