#include <base/todo.h>
#include <malloc.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <sys/prctl.h>
#include <testing/memory_limit.h>
#include <testing/retained_memory.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

// Returns the bytes of private mappings that only this process has written to, including pages that
// were swapped out. A page that is shared with the process that forked this one counts as soon as
// this process changes it.
int64_t written_bytes() {
  std::ifstream file("/proc/self/smaps");
  int64_t bytes = 0;
  bool is_private = false, found = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    if (!first.ends_with(':')) {  // a mapping begins: "7f00-7fff rw-p"
      is_private = second.ends_with('p');
    } else if (is_private && (first == "Private_Dirty:" || first == "Swap:")) {
      bytes += std::stoll(second) * 1024;
      found = true;
    }
  }
  if (!found) throw std::runtime_error("RetainedMemory: /proc/self/smaps has no Private_Dirty");
  return bytes;
}

}  // namespace

RetainedMemory::RetainedMemory() {
  // Disables huge pages, because a huge page counts as written even if little of it is used.
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  before_ = now();
}

RetainedMemory::Bytes RetainedMemory::now() {
  counting_allocator::release_kept();
  malloc_trim(0);
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
    take_todo();  // the note that todo() leaves would end the test
  }
}

}  // namespace fsdp
