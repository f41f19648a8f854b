#include <base/todo.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/written_bytes.h>
#include <sys/prctl.h>
#include <testing/memory_limit.h>
#include <testing/retained_memory.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {

RetainedMemory::RetainedMemory() {
  // Disables huge pages, because a huge page counts as written even if little of it is used.
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  before_ = now();
}

RetainedMemory::Bytes RetainedMemory::now() {
  if (kSanitized) return {live_bytes::now().total, 0, 0};
  return {live_bytes::now().total, counting_allocator::alive(), written_bytes()};
}

nlohmann::json RetainedMemory::taken() const {
  const Bytes after = now();
  if (after.tensors - before_.tensors < after.on_heap - before_.on_heap) {
    throw std::runtime_error(
        "RetainedMemory: fewer bytes of tensors are counted than were allocated");
  }
  const int64_t besides = after.written - before_.written - (after.on_heap - before_.on_heap);
  return {{"tensors", after.tensors - before_.tensors}, {"besides", std::max(besides, int64_t{0})}};
}

void as_far_as_written(const std::function<void()>& part) {
  try {
    part();
  } catch (const NotStarted&) {
    take_todo();  // forgets that a todo() was reached, which would make the test "not started"
  }
}

}  // namespace fsdp
