#include <memory/counting_allocator.h>
#include <memory/device_blocks.h>
#include <memory/meta_blocks.h>
#include <memory/reclassify.h>

namespace fsdp::live_bytes {

void reclassify(const c10::DataPtr& block, MemoryClass cls) {
  if (block.device().is_cpu()) {
    counting_allocator::reclassify(block, cls);
  } else if (block.device().is_meta()) {
    meta_blocks::reclassify(block, cls);
  } else {
    device_blocks::reclassify(block.get(), cls);
  }
}

}  // namespace fsdp::live_bytes
