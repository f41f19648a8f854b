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
constexpr size_t kMostUnused = 8;  // a kept block may be larger than what is wanted by 1 / this
constexpr int64_t kMostKept = int64_t{1} << 26;  // [bytes] beyond the peak

// Lies before the data. Its alignment is what torch expects of a block.
struct alignas(64) Header {
  size_t bytes;  // asked for
  size_t room;   // [bytes] of the block without this header, at least `bytes`
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
    size_t room;
    void* block;
  };

  Kept take(size_t bytes);
  void keep(Kept kept, size_t used);
  void trim(int64_t bytes_to_come);

  std::mutex mutex_;
  std::vector<Kept> kept_;  // oldest first
  int64_t kept_bytes_{};
  int64_t unused_bytes_{};  // of alive blocks that are larger than what was asked for
};

// Never destroyed: tensors of static duration are freed after main().
CountingAllocator& instance() {
  static auto* allocator = new CountingAllocator;
  return *allocator;
}

// The context is the data pointer itself: raw_allocate(), which mkldnn calls, demands it.
c10::DataPtr CountingAllocator::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &CountingAllocator::free, c10::kCPU};
  const Kept taken = take(bytes);
  auto* header = new (taken.block) Header{bytes, taken.room, MemoryScope::current()};
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
  if (header->room < kWorthKeeping) {
    c10::free_cpu(header);
  } else {
    instance().keep({header->room, header}, bytes);
  }
}

// Returns memory for a header and `bytes`, and counts them: the smallest kept block that has room for
// them and little more, of two the one that was freed last, or else a new one. Counts last, since
// the allocation may throw, and under the lock, so that another thread's trim() sees these bytes
// either as kept or as alive.
CountingAllocator::Kept CountingAllocator::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto best = kept_.end();
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    const bool fits = kept->room >= bytes && kept->room - bytes <= bytes / kMostUnused;
    if (fits && (best == kept_.end() || kept->room <= best->room)) best = kept;
  }
  Kept taken{bytes, nullptr};
  if (best != kept_.end()) {
    taken = *best;
    kept_bytes_ -= static_cast<int64_t>(taken.room);
    unused_bytes_ += static_cast<int64_t>(taken.room - bytes);
    kept_.erase(best);
  } else {
    trim(static_cast<int64_t>(bytes));
    taken.block = c10::alloc_cpu(bytes + sizeof(Header));
  }
  live_bytes::add(MemoryScope::current(), static_cast<int64_t>(bytes));
  return taken;
}

void CountingAllocator::keep(Kept kept, size_t used) {
  const std::lock_guard lock(mutex_);
  unused_bytes_ -= static_cast<int64_t>(kept.room - used);
  kept_.push_back(kept);
  kept_bytes_ += static_cast<int64_t>(kept.room);
  trim(0);
}

// Releases the oldest kept blocks until there is room for `bytes_to_come` within 5/4 of the peak,
// and within kMostKept beyond it.
void CountingAllocator::trim(int64_t bytes_to_come) {
  if (kept_.empty()) return;
  const int64_t alive = live_bytes::now().total + bytes_to_come;
  const int64_t peak = std::max(live_bytes::peak_total(), alive);
  const int64_t room = peak + std::min(peak / 4, kMostKept) - alive - unused_bytes_;
  auto end = kept_.begin();
  for (; end != kept_.end() && kept_bytes_ > room; ++end) {
    kept_bytes_ -= static_cast<int64_t>(end->room);
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
