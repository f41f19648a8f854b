#include <comm/arena.h>
#include <memory/poison.h>

#include <stdexcept>
#include <string>

namespace fsdp {

namespace {

constexpr size_t kBlockAlignment = 64;
constexpr size_t kMostSplit = 4;

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
    const auto found = stretch_for(needed);
    if (found == free_.end()) {
      throw std::runtime_error("the arena of shared memory (" + std::to_string(total_) +
                               " bytes) has no room for " + std::to_string(bytes) + " bytes");
    }
    const size_t stretch = found->second;
    begin = found->first;
    erase(found);
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

// The shortest stretch that is long enough. But one of more than kMostSplit times `needed` is left to
// the large tensors that come back to it, since behind the last block there is memory as well.
Arena::Stretches::iterator Arena::stretch_for(size_t needed) {
  const auto fit = by_size_.lower_bound({needed, nullptr});
  if (fit == by_size_.end()) return free_.end();
  const auto last = std::prev(free_.end());
  if (fit->first / kMostSplit > needed && last->second >= needed) return last;
  return free_.find(fit->second);
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

void Arena::erase(Stretches::iterator stretch) {
  by_size_.erase({stretch->second, stretch->first});
  free_.erase(stretch);
}

}  // namespace fsdp
