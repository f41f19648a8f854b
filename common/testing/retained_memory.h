#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

namespace fsdp {

// The memory that a rank has allocated since this object was made and still holds, for
// expect_part_of() and expect_no_copies().
// - "tensors": the live bytes of tensors.
// - "besides": other memory, such as a std::vector, a static array or the memory under
//   at::from_blob(). The kernel counts it: the pages that only this process has written to. Partly
//   used pages and torch's internal memory count too, so measure a model of at least 16 MB.
// - Before each measurement, allocators release what they keep for reuse.
class RetainedMemory {
 public:
  RetainedMemory();  // throws std::runtime_error if the kernel does not count pages

  // Returns {"tensors": bytes, "besides": bytes}. Under a sanitizer, whose own memory would count,
  // "besides" is 0. Throws std::runtime_error if fewer bytes of tensors are counted than the CPU
  // allocator has allocated.
  nlohmann::json taken() const;

 private:
  struct Bytes {
    int64_t tensors;  // alive
    int64_t on_heap;  // the part of `tensors` from the CPU allocator; the rest is in shared memory
    int64_t written;  // in memory that is not shared
  };
  static Bytes now();
  Bytes before_;
};

// Runs `part`. If `part` reaches a todo(), it ends there and the test continues, because that
// function is not under test.
void as_far_as_written(const std::function<void()>& part);

}  // namespace fsdp
