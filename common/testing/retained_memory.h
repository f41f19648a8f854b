#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

namespace fsdp {

// Measures the memory that a rank has allocated since this object was made and still holds, for
// expect_part_of() and expect_no_copies().
// - "tensors": the live bytes of tensors.
// - "besides": other memory, such as a std::vector, a static array or the memory under
//   at::from_blob(). It is measured by the pages that only this process has written to, which the
//   kernel counts. Partly used pages and PyTorch's internal memory count too, so measure a model of
//   at least 16 MB.
// - Before each measurement, allocators release the memory that they keep for reuse.
class RetainedMemory {
 public:
  RetainedMemory();  // throws std::runtime_error if the kernel does not count pages

  // Returns {"tensors": bytes, "besides": bytes}. Under a sanitizer, whose own memory would count,
  // "besides" is 0. Throws std::runtime_error if live bytes grew by less than the bytes of the CPU
  // allocator's live blocks.
  nlohmann::json taken() const;

 private:
  struct Bytes {
    // The live bytes of all tensors of this process.
    int64_t tensors;
    // Those bytes of `tensors` that the CPU allocator has allocated; the others are in shared
    // memory.
    int64_t on_heap;
    // written_bytes() returned this number: the bytes of this process's private memory that it has
    // written.
    int64_t written;
  };
  static Bytes now();
  Bytes before_;
};

// Runs `part`. If `part` reaches a todo(), `part` ends there and the test continues, because the
// function that is not written yet is not under test.
void as_far_as_written(const std::function<void()>& part);

}  // namespace fsdp
