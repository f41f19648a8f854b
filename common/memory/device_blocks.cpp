#include <memory/device_blocks.h>
#include <memory/live_bytes.h>

#include <mutex>
#include <optional>
#include <stdexcept>
#include <unordered_map>

namespace fsdp::device_blocks {
namespace {

struct Block {
  int64_t bytes;
  MemoryClass cls;
};

// The one object of this type is never destroyed, because tensors with static lifetime are freed
// after main().
struct Blocks {
  std::mutex mutex;
  std::unordered_map<const void*, Block> by_address;
};

Blocks& blocks() {
  static auto* blocks = new Blocks;
  return *blocks;
}

std::optional<Block> take(const void* address) {
  std::lock_guard lock(blocks().mutex);
  const auto found = blocks().by_address.extract(address);
  if (found.empty()) return std::nullopt;
  return found.mapped();
}

void put(const void* address, const Block& block) {
  std::lock_guard lock(blocks().mutex);
  blocks().by_address[address] = block;
}

}  // namespace

void allocated(const void* block, int64_t bytes) {
  if (bytes < 0) throw std::invalid_argument("device_blocks: a block of fewer than 0 bytes");
  const MemoryClass cls = MemoryScope::current();
  put(block, {bytes, cls});
  live_bytes::add(cls, bytes);
}

void freed(const void* block) {
  if (const auto known = take(block)) live_bytes::remove(known->cls, known->bytes, block);
}

void reclassify(const void* block, MemoryClass cls) {
  const auto known = take(block);
  if (!known) return;
  put(block, {known->bytes, cls});
  live_bytes::add(known->cls, -known->bytes);
  live_bytes::add(cls, known->bytes);
}

}  // namespace fsdp::device_blocks
