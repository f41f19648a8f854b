#include <base/todo.h>
#include <sharded_optimizer.h>

#include <cmath>

namespace fsdp {

double ShardedOptimizer::clip_grad_norm(double max_norm, double norm_type) {
  todo("ShardedOptimizer::clip_grad_norm", "5.4");
}

}  // namespace fsdp
