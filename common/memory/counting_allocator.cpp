#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/poison.h>

#include <algorithm>

namespace fsdp {
namespace {

constexpr size_t kWorthKeeping = size_t{1} << 20;

}  // namespace

// Lies before the data; as long as the alignment that torch expects of a block.
struct alignas(64) CountingAllocator::Header {
  size_t bytes;
  MemoryClass cls;
};

void CountingAllocator::install() {
  constexpr uint8_t kAboveDefault = 200;
  c10::SetCPUAllocator(&instance(), kAboveDefault);
}

// Never destroyed: tensors of static duration are freed after main().
CountingAllocator& CountingAllocator::instance() {
  static auto* allocator = new CountingAllocator;
  return *allocator;
}

// The context is the data pointer itself: raw_allocate(), which mkldnn calls, demands it.
c10::DataPtr CountingAllocator::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &CountingAllocator::free, c10::kCPU};
  MemoryClass cls = live_bytes::current_class();
  live_bytes::add(cls, static_cast<int64_t>(bytes));
  auto* header = new (take(bytes)) Header{bytes, cls};
  void* data = header + 1;
  poison::spoil(data, bytes);
  return {data, data, &CountingAllocator::free, c10::kCPU};
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const {
  return &CountingAllocator::free;
}

void CountingAllocator::copy_data(void* to, const void* from, size_t bytes) const {
  default_copy_data(to, from, bytes);
}

void CountingAllocator::reclassify(const c10::DataPtr& block, MemoryClass cls) {
  if (block.get_deleter() != &CountingAllocator::free || !block) return;
  auto* header = static_cast<Header*>(block.get()) - 1;
  live_bytes::add(header->cls, -static_cast<int64_t>(header->bytes));
  header->cls = cls;
  live_bytes::add(header->cls, static_cast<int64_t>(header->bytes));
}

void CountingAllocator::free(void* data) {
  if (!data) return;
  auto* header = static_cast<Header*>(data) - 1;
  size_t bytes = header->bytes;
  live_bytes::remove(header->cls, static_cast<int64_t>(bytes), data);
  poison::spoil(data, bytes);
  if (bytes < kWorthKeeping) {
    c10::free_cpu(header);
  } else {
    instance().keep({bytes, header});
  }
}

// A kept block of this size, the one freed last, or else a new one.
void* CountingAllocator::take(size_t bytes) {
  if (bytes >= kWorthKeeping) {
    std::lock_guard lock(mutex_);
    auto same_size = [&](const Kept& kept) { return kept.bytes == bytes; };
    auto found = std::find_if(kept_.rbegin(), kept_.rend(), same_size);
    if (found != kept_.rend()) {
      void* block = found->block;
      kept_bytes_ -= static_cast<int64_t>(bytes);
      kept_.erase(std::next(found).base());
      return block;
    }
    trim(live_bytes::peak_total() / 4 * 5 - live_bytes::now().total);
  }
  return c10::alloc_cpu(bytes + sizeof(Header));
}

void CountingAllocator::keep(Kept kept) {
  std::lock_guard lock(mutex_);
  kept_.push_back(kept);
  kept_bytes_ += static_cast<int64_t>(kept.bytes);
}

// Releases the oldest until at most `room` bytes are kept.
void CountingAllocator::trim(int64_t room) {
  auto end = kept_.begin();
  for (; end != kept_.end() && kept_bytes_ > room; ++end) {
    kept_bytes_ -= static_cast<int64_t>(end->bytes);
    c10::free_cpu(end->block);
  }
  kept_.erase(kept_.begin(), end);
}

}  // namespace fsdp
