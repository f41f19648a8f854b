#include <launch/arena.h>
#include <memory/poison.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace fsdp {

namespace {

constexpr size_t kBlockAlignment = 64;

AddressRanges::From side_of(MemoryClass cls) {
  const bool lasts = cls == MemoryClass::shards || cls == MemoryClass::sharded_gradients ||
                     cls == MemoryClass::optimizer_state;
  return lasts ? AddressRanges::From::begin : AddressRanges::From::end;
}

}  // namespace

// The header that lies in front of the data of each allocated block.
struct alignas(kBlockAlignment) Arena::Header {
  Arena* owner;
  size_t length;  // number of bytes of the block, with this header and the rounding
  size_t bytes;   // number of bytes that the caller of allocate() requested
  MemoryClass cls;
  bool counted;
};

Arena::Arena(char* begin, size_t bytes, std::string hint) : total_(bytes), hint_(std::move(hint)) {
  gaps_.insert(begin, bytes);
}

c10::DataPtr Arena::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &Arena::free, c10::kCPU};
  const size_t needed =
      sizeof(Header) + (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  const MemoryClass cls = MemoryScope::current();
  std::unique_lock lock(mutex_);
  char* begin = gaps_.take(needed, side_of(cls));
  lock.unlock();
  if (begin == nullptr) {
    throw std::runtime_error("the arena of shared memory (" + std::to_string(total_) +
                             " bytes) has no room for " + std::to_string(bytes) + " bytes" + hint_);
  }
  auto* header = new (begin) Header{this, needed, bytes, cls, counts_};
  if (counts_) live_bytes::add(cls, static_cast<int64_t>(bytes));
  void* data = header + 1;
  poison::spoil(data, bytes);
  return {data, data, &Arena::free, c10::kCPU};
}

c10::DeleterFnPtr Arena::raw_deleter() const {
  return &Arena::free;
}

void Arena::copy_data(void* to, const void* from, size_t bytes) const {
  default_copy_data(to, from, bytes);
}

void Arena::free(void* data) {
  if (!data) return;
  Header header = *(static_cast<Header*>(data) - 1);
  if (header.counted) live_bytes::remove(header.cls, static_cast<int64_t>(header.bytes), data);
  poison::spoil(data, header.bytes);
  Arena& arena = *header.owner;
  std::lock_guard lock(arena.mutex_);
  arena.gaps_.insert(static_cast<char*>(data) - sizeof(Header), header.length);
}

}  // namespace fsdp
