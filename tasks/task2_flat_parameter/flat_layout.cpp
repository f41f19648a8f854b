#include <base/todo.h>
#include <flat_layout.h>
#include <optim/shard_layout.h>

namespace fsdp {

FlatLayout flat_layout(const std::vector<int64_t>& numels, int world_size) {
  todo("flat_layout", "2.1");
}

}  // namespace fsdp
