#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/poison.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace fsdp::counting_allocator {
namespace {

constexpr size_t kWorthKeeping = size_t{1} << 20;
constexpr int64_t kMostKept = int64_t{1} << 26;  // [bytes] beyond the peak

// Lies before the data. Its alignment is what torch expects of a block.
struct alignas(64) Header {
  size_t bytes;
  MemoryClass cls;
};

Header* header_of(void* data) {
  return static_cast<Header*>(data) - 1;
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static void free(void* data);

 private:
  struct Kept {
    size_t bytes;
    void* block;
  };

  void* take(size_t bytes);
  void keep(Kept kept);
  void trim(int64_t bytes_to_come);

  std::mutex mutex_;
  std::vector<Kept> kept_;  // oldest first
  int64_t kept_bytes_{};
};

// Never destroyed: tensors of static duration are freed after main().
CountingAllocator& instance() {
  static auto* allocator = new CountingAllocator;
  return *allocator;
}

// The context is the data pointer itself: raw_allocate(), which mkldnn calls, demands it.
c10::DataPtr CountingAllocator::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &CountingAllocator::free, c10::kCPU};
  auto* header = new (take(bytes)) Header{bytes, MemoryScope::current()};
  void* data = header + 1;
  poison::spoil(data, bytes);
  return {data, data, &CountingAllocator::free, c10::kCPU};
}

void CountingAllocator::free(void* data) {
  if (!data) return;
  Header* header = header_of(data);
  const size_t bytes = header->bytes;
  live_bytes::remove(header->cls, static_cast<int64_t>(bytes), data);
  poison::spoil(data, bytes);
  if (bytes < kWorthKeeping) {
    c10::free_cpu(header);
  } else {
    instance().keep({bytes, header});
  }
}

// Returns memory for a header and `bytes`, and counts them: the kept block of this size that was
// freed last, or else a new one. Counts last, since the allocation may throw, and under the lock,
// so that another thread's trim() sees these bytes either as kept or as alive.
void* CountingAllocator::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto same_size = [&](const Kept& kept) { return kept.bytes == bytes; };
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(), same_size);
  void* block = nullptr;
  if (found != kept_.rend()) {
    block = found->block;
    kept_bytes_ -= static_cast<int64_t>(bytes);
    kept_.erase(std::next(found).base());
  } else {
    trim(static_cast<int64_t>(bytes));
    block = c10::alloc_cpu(bytes + sizeof(Header));
  }
  live_bytes::add(MemoryScope::current(), static_cast<int64_t>(bytes));
  return block;
}

void CountingAllocator::keep(Kept kept) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(kept);
  kept_bytes_ += static_cast<int64_t>(kept.bytes);
  trim(0);
}

// Releases the oldest kept blocks until there is room for `bytes_to_come` within 5/4 of the peak,
// and within kMostKept beyond it.
void CountingAllocator::trim(int64_t bytes_to_come) {
  if (kept_.empty()) return;
  const int64_t alive = live_bytes::now().total + bytes_to_come;
  const int64_t peak = std::max(live_bytes::peak_total(), alive);
  const int64_t room = peak + std::min(peak / 4, kMostKept) - alive;
  auto end = kept_.begin();
  for (; end != kept_.end() && kept_bytes_ > room; ++end) {
    kept_bytes_ -= static_cast<int64_t>(end->bytes);
    c10::free_cpu(end->block);
  }
  kept_.erase(kept_.begin(), end);
}

}  // namespace

void install() {
  constexpr uint8_t kAboveDefault = 200;
  c10::SetCPUAllocator(&instance(), kAboveDefault);
}

void reclassify(const c10::DataPtr& block, MemoryClass cls) {
  if (block.get_deleter() != &CountingAllocator::free || !block) return;
  Header* header = header_of(block.get());
  live_bytes::add(header->cls, -static_cast<int64_t>(header->bytes));
  header->cls = cls;
  live_bytes::add(header->cls, static_cast<int64_t>(header->bytes));
}

}  // namespace fsdp::counting_allocator
