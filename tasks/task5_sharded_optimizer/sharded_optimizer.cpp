#include <base/todo.h>
#include <sharded_optimizer.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace fsdp {

ShardedOptimizer::ShardedOptimizer(std::vector<std::shared_ptr<FlatParameter>> units,
                                   std::vector<ParameterGroup> groups,
                                   std::shared_ptr<Communicator> comm) {
  todo("ShardedOptimizer::ShardedOptimizer", "5.1");
}

void ShardedOptimizer::step() {
  todo("ShardedOptimizer::step", "5.1");
}

void ShardedOptimizer::zero_grad() {
  todo("ShardedOptimizer::zero_grad", "5.1");
}

double ShardedOptimizer::clip_grad_norm(double max_norm) {
  todo("ShardedOptimizer::clip_grad_norm", "5.3");
}

}  // namespace fsdp
