#pragma once

#include <memory/address_ranges.h>

#include <cstdint>

namespace fsdp {

// Private memory for large blocks. The pages of a freed block stay with the process for the next
// one, of whatever size: the system, if it got them back, would write zeros to them again at every
// use. Neighbours that are free are one gap. Not safe for several threads at a time.
class LargeBlocks {
 public:
  // Reserves as many addresses as the machine has memory, or half as many and so on if the system
  // refuses. Takes no memory.
  LargeBlocks();
  LargeBlocks(const LargeBlocks&) = delete;

  // Returns `bytes` that begin at a multiple of a page. Null if there is no room, or if the system
  // gives no memory.
  void* take(size_t bytes);
  void give_back(void* block, size_t bytes);  // the same as at take()
  bool holds(const void* block) const;        // whether take() returned it

  int64_t kept() const { return kept_bytes_; }  // [bytes] of pages in gaps that were in use before
  void release(int64_t bytes);  // of these pages to the system, those at the end first

 private:
  char* begin_{};
  size_t bytes_{};
  char* usable_end_{};  // the system lets nobody touch what lies behind
  AddressRanges gaps_;
  AddressRanges kept_;
  int64_t kept_bytes_{};
};

}  // namespace fsdp
