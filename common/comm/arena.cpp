#include <comm/arena.h>
#include <memory/poison.h>

#include <stdexcept>
#include <string>

namespace fsdp {

namespace {

constexpr size_t kBlockAlignment = 64;

}  // namespace

// Lies before the data of each block.
struct alignas(kBlockAlignment) Arena::Header {
  Arena* owner;
  size_t stretch;  // [bytes] with this header and the rounding
  size_t bytes;    // asked for
  MemoryClass cls;
};

Arena::Arena(char* begin, size_t bytes) : total_(bytes) {
  insert(begin, bytes);
}

c10::DataPtr Arena::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &Arena::free, c10::kCPU};
  size_t needed =
      sizeof(Header) + (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  char* begin;
  {
    std::lock_guard lock(mutex_);
    auto fit = by_size_.lower_bound({needed, nullptr});
    if (fit == by_size_.end()) {
      throw std::runtime_error("the arena of shared memory (" + std::to_string(total_) +
                               " bytes) has no room for " + std::to_string(bytes) + " bytes");
    }
    size_t stretch = fit->first;
    begin = fit->second;
    erase(free_.find(begin));
    if (stretch > needed) insert(begin + needed, stretch - needed);
  }
  auto* header = new (begin) Header{this, needed, bytes, MemoryScope::current()};
  live_bytes::add(header->cls, static_cast<int64_t>(bytes));
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
  arena.insert(static_cast<char*>(data) - sizeof(Header), header.stretch);
}

void Arena::insert(char* begin, size_t bytes) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + bytes) {
    bytes += next->second;
    auto merged = next++;
    erase(merged);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      bytes += previous->second;
      erase(previous);
    }
  }
  free_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
}

void Arena::erase(std::map<char*, size_t>::iterator stretch) {
  by_size_.erase({stretch->second, stretch->first});
  free_.erase(stretch);
}

}  // namespace fsdp
