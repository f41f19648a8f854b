#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <memory/address_ranges.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/poison.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>

namespace fsdp::counting_allocator {
namespace {

// Blocks of at least this number of bytes come from LargeBlocks. Smaller blocks come from malloc(),
// which itself keeps the pages of freed blocks for reuse.
constexpr size_t kLarge = size_t{1} << 17;

size_t up_to(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

// Private memory for blocks of at least kLarge bytes. After a block is freed, its pages stay with
// the process for later large blocks of any size. Neighbouring free blocks are merged into one gap.
// Only one thread at a time may use an object of this class.
class LargeBlocks {
 public:
  // Reserves a range of addresses as large as the machine's memory; if the system refuses, half as
  // large, and so on. The reservation uses no memory.
  LargeBlocks() {
    const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
    for (size_t bytes = up_to(pages * kPage, kGrowth); bytes >= kLeast;
         bytes = up_to(bytes / 2, kGrowth)) {
      // A reservation with PROT_NONE counts only towards the limit of the address space (ulimit
      // -v).
      void* const begin =
          mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (begin == MAP_FAILED) continue;
      begin_ = usable_end_ = static_cast<char*>(begin);
      bytes_ = bytes;
      gaps_.insert(begin_, bytes_);
      return;
    }
  }
  LargeBlocks(const LargeBlocks&) = delete;

  // Returns a block of `bytes` that begins at a multiple of a page; null if no gap is large enough,
  // or if the system provides no memory.
  void* take(size_t bytes) {
    bytes = up_to(bytes, kPage);
    char* const block = gaps_.take(bytes, AddressRanges::From::begin);
    if (block == nullptr) return nullptr;
    if (block + bytes > usable_end_) {
      const size_t more = up_to(block + bytes - usable_end_, kGrowth);
      if (mprotect(usable_end_, more, PROT_READ | PROT_WRITE) != 0) {
        gaps_.insert(block, bytes);
        return nullptr;
      }
      usable_end_ += more;
    }
    kept_bytes_ -= static_cast<int64_t>(kept_.remove(block, bytes));
    return block;
  }

  void give_back(void* block, size_t bytes) {  // `bytes`: as passed to take() for this block
    bytes = up_to(bytes, kPage);
    gaps_.insert(static_cast<char*>(block), bytes);
    kept_.insert(static_cast<char*>(block), bytes);
    kept_bytes_ += static_cast<int64_t>(bytes);
  }

  // Returns whether `block` came from take().
  bool holds(const void* block) const { return begin_ <= block && block < begin_ + bytes_; }

  // Returns the number of bytes of freed blocks that are not yet returned to the system.
  int64_t kept() const { return kept_bytes_; }

  // Returns memory of freed blocks to the system, those with the highest addresses first, until it
  // has returned `bytes`, rounded up to whole pages, or all of this memory.
  void release(int64_t bytes) {
    while (bytes > 0 && kept_bytes_ > 0) {
      const auto [begin, length] = *kept_.all().rbegin();
      const size_t part = std::min(length, up_to(static_cast<size_t>(bytes), kPage));
      madvise(begin + (length - part), part, MADV_DONTNEED);
      kept_.remove(begin + (length - part), part);
      kept_bytes_ -= static_cast<int64_t>(part);
      bytes -= static_cast<int64_t>(part);
    }
  }

 private:
  static constexpr size_t kPage = size_t{1} << 12;
  // take() makes the reserved memory accessible in multiples of this number of bytes.
  static constexpr size_t kGrowth = size_t{1} << 26;
  // If the system refuses to reserve this number of bytes too, nothing is reserved, and all blocks
  // come from malloc().
  static constexpr size_t kLeast = size_t{1} << 28;

  char* begin_{};
  size_t bytes_{};
  char* usable_end_{};  // addresses from here on cannot be accessed yet
  AddressRanges gaps_;
  AddressRanges kept_;
  int64_t kept_bytes_{};
};

// The header that lies in memory directly before the data of each block. Its alignment is the one
// that LibTorch expects of a block's data.
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
  void keep_at_most(int64_t bytes) { most_kept_ = bytes; }
  void release_kept();
  int64_t alive() const { return alive_; }

 private:
  void* take(size_t bytes);
  void give_back(Header* block, size_t bytes);
  void trim();

  std::mutex mutex_;
  LargeBlocks large_;
  // The number of bytes of freed blocks that may be kept beyond the peak of live bytes.
  std::atomic<int64_t> most_kept_{int64_t{1} << 28};
  std::atomic<int64_t> alive_{};  // number of bytes in live blocks of this allocator
};

// The allocator is never destroyed, because tensors with static lifetime are freed after main().
CountingAllocator& instance() {
  static auto* allocator = new CountingAllocator;
  return *allocator;
}

// The context of the DataPtr is the data pointer itself: c10::Allocator::raw_allocate(), which
// mkldnn calls, requires that both are equal.
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
  instance().alive_ -= static_cast<int64_t>(bytes);
  poison::spoil(data, bytes);
  instance().give_back(header, bytes);
}

// Returns memory for a header and `bytes` of data, and counts these bytes as live. Counts them
// after the allocation, because the allocation may throw. Holds the lock during both, so that
// trim() in another thread finds these bytes either among the kept or among the live ones.
void* CountingAllocator::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  void* block = bytes >= kLarge ? large_.take(bytes + sizeof(Header)) : nullptr;
  if (block == nullptr) block = c10::alloc_cpu(bytes + sizeof(Header));
  live_bytes::add(MemoryScope::current(), static_cast<int64_t>(bytes));
  alive_ += static_cast<int64_t>(bytes);
  trim();
  return block;
}

void CountingAllocator::give_back(Header* block, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (large_.holds(block)) {
    large_.give_back(block, bytes + sizeof(Header));
    trim();
  } else {
    c10::free_cpu(block);
  }
}

// Returns kept memory (of freed large blocks) to the system until kept and live bytes together are
// at most 5/4 of the peak of live bytes, and at most this peak plus most_kept_.
void CountingAllocator::trim() {
  const int64_t peak = live_bytes::peak_total();
  const int64_t most = peak + std::min(peak / 4, most_kept_.load()) - live_bytes::now().total;
  large_.release(large_.kept() - most);
}

void CountingAllocator::release_kept() {
  const std::lock_guard lock(mutex_);
  large_.release(large_.kept());
}

}  // namespace

void install() {
  constexpr uint8_t kAboveDefault = 200;
  c10::SetCPUAllocator(&instance(), kAboveDefault);
}

void keep_at_most(int64_t bytes) {
  instance().keep_at_most(bytes);
}

void release_kept() {
  instance().release_kept();
}

int64_t alive() {
  return instance().alive();
}

void reclassify(const c10::DataPtr& block, MemoryClass cls) {
  if (block.get_deleter() != &CountingAllocator::free || !block) return;
  Header* header = header_of(block.get());
  live_bytes::add(header->cls, -static_cast<int64_t>(header->bytes));
  header->cls = cls;
  live_bytes::add(header->cls, static_cast<int64_t>(header->bytes));
}

}  // namespace fsdp::counting_allocator
