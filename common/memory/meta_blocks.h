#pragma once

#include <c10/core/Allocator.h>
#include <memory/memory_class.h>

// Counts tensors on the meta device in live_bytes, as if they had memory.
namespace fsdp::meta_blocks {

// While an object of this class lives, memory that the process allocates on the meta device is
// counted. The bytes of such a tensor are subtracted when it is freed, even if that is after the
// end of this object. Only one such object may exist at a time.
class [[nodiscard]] Counting {
 public:
  Counting();
  ~Counting();
  Counting(const Counting&) = delete;

 private:
  c10::Allocator* before_;
};

// Counts the block into `cls` from now on. Ignores blocks that are not counted.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

}  // namespace fsdp::meta_blocks
