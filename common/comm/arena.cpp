#include <comm/arena.h>
#include <memory/poison.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace fsdp {

namespace {

constexpr size_t kBlockAlignment = 64;

bool is_part_of_a_rank(MemoryClass cls) {
  return cls == MemoryClass::shards || cls == MemoryClass::sharded_gradients ||
         cls == MemoryClass::optimizer_state;
}

}  // namespace

// Lies before the data of each block.
struct alignas(kBlockAlignment) Arena::Header {
  Arena* owner;
  size_t length;  // [bytes] with this header and the rounding
  size_t bytes;   // asked for
  MemoryClass cls;
};

Arena::Arena(char* begin, size_t bytes) : total_(bytes) {
  insert(begin, bytes);
}

c10::DataPtr Arena::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &Arena::free, c10::kCPU};
  const size_t needed =
      sizeof(Header) + (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  const MemoryClass cls = MemoryScope::current();
  char* begin = take(needed, is_part_of_a_rank(cls));
  if (begin == nullptr) {
    throw std::runtime_error("the arena of shared memory (" + std::to_string(total_) +
                             " bytes) has no room for " + std::to_string(bytes) + " bytes");
  }
  auto* header = new (begin) Header{this, needed, bytes, cls};
  live_bytes::add(cls, static_cast<int64_t>(bytes));
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
  live_bytes::remove(header.cls, static_cast<int64_t>(header.bytes), data);
  poison::spoil(data, header.bytes);
  Arena& arena = *header.owner;
  std::lock_guard lock(arena.mutex_);
  arena.insert(static_cast<char*>(data) - sizeof(Header), header.length);
}

char* Arena::take(size_t bytes, bool from_begin) {
  const std::lock_guard lock(mutex_);
  const auto fits = [bytes](const auto& gap) { return gap.second >= bytes; };
  auto found = gaps_.end();
  if (from_begin) {
    found = std::find_if(gaps_.begin(), gaps_.end(), fits);
  } else if (const auto last = std::find_if(gaps_.rbegin(), gaps_.rend(), fits);
             last != gaps_.rend()) {
    found = std::prev(last.base());
  }
  if (found == gaps_.end()) return nullptr;
  const auto [begin, length] = *found;
  gaps_.erase(found);
  char* rest = from_begin ? begin + bytes : begin;
  if (length > bytes) insert(rest, length - bytes);
  return from_begin ? begin : begin + (length - bytes);
}

void Arena::insert(char* begin, size_t bytes) {
  auto next = gaps_.lower_bound(begin);
  if (next != gaps_.end() && next->first == begin + bytes) {
    bytes += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += bytes;
      return;
    }
  }
  gaps_.emplace(begin, bytes);
}

}  // namespace fsdp
