#pragma once

#include <c10/core/Allocator.h>
#include <memory/memory_class.h>

// Counts tensors on the meta device in live_bytes, as if they had memory.
namespace fsdp::meta_blocks {

// While an object of this class lives, tensors that the process allocates on the meta device are
// counted as live bytes. The bytes of such a tensor are subtracted when it is freed, even if that
// is after the end of this object. Only one such object may exist at a time.
class [[nodiscard]] Counting {
 public:
  Counting();
  ~Counting();
  Counting(const Counting&) = delete;

 private:
  c10::Allocator* before_;
};

// Moves the live bytes of `block` from their MemoryClass to `cls`. Does nothing if the block was
// not allocated on the meta device while a Counting object lived.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

}  // namespace fsdp::meta_blocks
