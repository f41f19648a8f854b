#pragma once

#include <c10/core/Allocator.h>
#include <memory/live_bytes.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace fsdp {

// Allocates the storage of tensors in one fixed stretch of memory: best fit, but a small tensor does
// not split a large gap; free neighbours are merged; data begin at multiples of 64 bytes. Counts as
// live the bytes that were asked for.
class Arena final : public c10::Allocator {
 public:
  Arena(char* begin, size_t bytes);

  // Throws std::runtime_error if no free stretch is long enough.
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

 private:
  struct Header;
  using Stretches = std::map<char*, size_t>;  // of free memory: begin, bytes
  static void free(void* data);
  void insert(char* begin, size_t bytes);
  void erase(Stretches::iterator stretch);
  Stretches::iterator stretch_for(size_t needed);

  std::mutex mutex_;
  size_t total_;
  Stretches free_;                              // by address: to merge neighbours
  std::set<std::pair<size_t, char*>> by_size_;  // the same stretches: to find the best fit
};

}  // namespace fsdp
