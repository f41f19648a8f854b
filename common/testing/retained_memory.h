#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

namespace fsdp {

// What a rank has taken since this object was made and still holds, for expect_part_of() and
// expect_no_copies(): as tensors, and besides, as in a std::vector, a static array or the memory
// under at::from_blob(). The kernel counts the latter: the pages that this process alone has
// written to. Partly used pages and what torch keeps for itself are in that count too, so measure a
// model of 16 MB. Allocators first give back what they keep for reuse.
class RetainedMemory {
 public:
  RetainedMemory();  // throws std::runtime_error if the kernel does not tell

  // {"tensors": bytes, "besides": bytes}. Under a sanitizer, whose own memory would be counted,
  // nothing is held besides tensors. Throws std::runtime_error if the counted bytes of tensors are
  // fewer than what the CPU allocator has given away.
  nlohmann::json taken() const;

 private:
  struct Bytes {
    int64_t tensors;  // alive
    int64_t on_heap;  // of these, those of the CPU allocator: others lie in shared memory
    int64_t written;  // in memory that is not shared
  };
  static Bytes now();
  Bytes before_;
};

// Runs `part`. If a function is not written yet, it ends early and the test goes on: that function
// is not what the test is about.
void as_far_as_written(const std::function<void()>& part);

}  // namespace fsdp
