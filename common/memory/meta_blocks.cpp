#include <memory/live_bytes.h>
#include <memory/meta_blocks.h>

namespace fsdp::meta_blocks {
namespace {

struct Block {
  int64_t bytes;
  MemoryClass cls;
};

void free_block(void* context) {
  const auto* block = static_cast<Block*>(context);
  live_bytes::add(block->cls, -block->bytes);
  delete block;
}

class MetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{static_cast<int64_t>(bytes), MemoryScope::current()};
    live_bytes::add(block->cls, block->bytes);
    return {nullptr, block, &free_block, c10::Device(c10::kMeta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}
};

}  // namespace

Counting::Counting() : before_(c10::GetAllocator(c10::kMeta)) {
  static auto* allocator = new MetaAllocator;
  c10::SetAllocator(c10::kMeta, allocator);
}

Counting::~Counting() {
  c10::SetAllocator(c10::kMeta, before_);
}

void reclassify(const c10::DataPtr& data, MemoryClass cls) {
  if (data.get_deleter() != &free_block) return;
  auto* block = static_cast<Block*>(data.get_context());
  live_bytes::add(block->cls, -block->bytes);
  block->cls = cls;
  live_bytes::add(cls, block->bytes);
}

}  // namespace fsdp::meta_blocks
