#include <memory/large_blocks.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace fsdp {
namespace {

constexpr size_t kPage = size_t{1} << 12;
constexpr size_t kGrowth = size_t{1} << 26;  // [bytes] that become usable at a time
constexpr size_t kLeast = size_t{1} << 28;   // [bytes] below which a reservation is of no use

size_t up_to(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

LargeBlocks::LargeBlocks() {
  const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  for (size_t bytes = up_to(pages * kPage, kGrowth); bytes >= kLeast;
       bytes = up_to(bytes / 2, kGrowth)) {
    // Memory that cannot be used yet counts for no limit but that of addresses.
    void* const begin =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) continue;
    begin_ = usable_end_ = static_cast<char*>(begin);
    bytes_ = bytes;
    gaps_.insert(begin_, bytes_);
    return;
  }
}

void* LargeBlocks::take(size_t bytes) {
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

void LargeBlocks::give_back(void* block, size_t bytes) {
  bytes = up_to(bytes, kPage);
  gaps_.insert(static_cast<char*>(block), bytes);
  kept_.insert(static_cast<char*>(block), bytes);
  kept_bytes_ += static_cast<int64_t>(bytes);
}

bool LargeBlocks::holds(const void* block) const {
  return begin_ <= block && block < begin_ + bytes_;
}

void LargeBlocks::release(int64_t bytes) {
  while (bytes > 0 && kept_bytes_ > 0) {
    const auto [begin, length] = *kept_.all().rbegin();
    const size_t part = std::min(length, up_to(static_cast<size_t>(bytes), kPage));
    madvise(begin + (length - part), part, MADV_DONTNEED);
    kept_.remove(begin + (length - part), part);
    kept_bytes_ -= static_cast<int64_t>(part);
    bytes -= static_cast<int64_t>(part);
  }
}

}  // namespace fsdp
