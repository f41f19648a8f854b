#pragma once

#include <c10/core/Allocator.h>
#include <memory/live_bytes.h>

#include <cstddef>
#include <mutex>
#include <vector>

namespace fsdp {

// The CPU allocator that counts every block into live_bytes. Freed blocks of 1 MiB and more are
// kept for an allocation of the same size: returned to the system, their pages would be zeroed
// again at every use. Kept and alive together never exceed 5/4 of the most that was alive; the
// oldest go first.
class CountingAllocator final : public c10::Allocator {
 public:
  static void install();  // in place of the CPU allocator, for the rest of the process

  // Counts a block of this allocator, and no other, into `cls` from now on.
  static void reclassify(const c10::DataPtr& block, MemoryClass cls);

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

 private:
  struct Header;
  struct Kept {
    size_t bytes;
    void* block;
  };

  CountingAllocator() = default;
  static CountingAllocator& instance();
  static void free(void* data);
  void* take(size_t bytes);
  void keep(Kept kept);
  void trim(int64_t room);

  std::mutex mutex_;
  std::vector<Kept> kept_;  // oldest first
  int64_t kept_bytes_{};
};

}  // namespace fsdp
