#pragma once

#include <c10/core/Allocator.h>
#include <memory/address_ranges.h>
#include <memory/live_bytes.h>

#include <mutex>
#include <string>

namespace fsdp {

// Allocates the storage of tensors in one fixed stretch of memory.
// - Sharded tensors stay for long (MemoryClass::shards, sharded_gradients, optimizer_state). A
//   sharded tensor gets the beginning of the first gap that is long enough. Any other tensor gets
//   the end of the last gap that is long enough. So a small tensor that stays does not split the
//   gap of a large one that is freed and allocated again, and a step touches few pages more than
//   its live bytes need.
// - Data begin at multiples of 64 bytes.
// - Counts the requested bytes as live, for blocks that were allocated before stop_counting().
class Arena final : public c10::Allocator {
 public:
  // `begin` and `bytes` must be multiples of 64. If an allocation finds no room, `hint` is appended
  // to the text of its error.
  Arena(char* begin, size_t bytes, std::string hint = "");

  void stop_counting() { counts_ = false; }

  // allocate() throws std::runtime_error if no gap is long enough for `bytes`.
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

 private:
  struct Header;
  static void free(void* data);

  std::mutex mutex_;
  bool counts_{true};
  size_t total_;
  std::string hint_;
  AddressRanges gaps_;
};

}  // namespace fsdp
