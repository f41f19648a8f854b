#pragma once

#include <memory/memory_class.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

// The exact bytes of tensor storage that are alive in this process, by class. They are counted
// where storage is allocated and freed, so the count includes memory that only a view keeps alive,
// and counting needs no GPU. A block that an allocator keeps for reuse is not alive. In a rank on a
// GPU, only the GPU's memory is counted, not the host's.
namespace fsdp {

enum class Phase : uint8_t { init, forward, backward, optimizer };
inline constexpr size_t kPhases = 4;
const char* to_string(Phase phase);

struct LiveBytes {
  std::array<int64_t, kMemoryClasses> by_class{};
  int64_t total{};

  int64_t operator[](MemoryClass cls) const { return by_class[static_cast<size_t>(cls)]; }
};

namespace live_bytes {

LiveBytes now();              // [bytes] alive
LiveBytes peak();             // [bytes] maximum since enter(), for each class and for the total
LiveBytes peak(Phase phase);  // [bytes] maximum over all times in `phase` since reset(phase)
int64_t peak_total();         // [bytes] maximum of the total since the process began
int64_t take_peak();          // [bytes] maximum of the total since the last take_peak()
void enter(Phase phase);      // begins `phase`; peak() starts again at what is alive now
void reset(Phase phase);      // forgets the peaks of `phase`

// Excludes work from the run's peaks: the destructor restores the peaks and the phase. Bytes that
// stay allocated count as live, but not in the peaks.
class [[nodiscard]] ScopedPeaks {
 public:
  ScopedPeaks();
  ~ScopedPeaks();
  ScopedPeaks(const ScopedPeaks&) = delete;
  struct Peaks;

 private:
  std::unique_ptr<Peaks> before_;
};

// For allocators. Counts `bytes` more of `cls`, or fewer if `bytes` is negative.
void add(MemoryClass cls, int64_t bytes);

// For allocators. Counts a block at `data` as freed and calls the callback of on_free().
void remove(MemoryClass cls, int64_t bytes, const void* data);

// Sets the function that remove() calls, in place of the one before; null: remove() calls none.
using FreeCallback = void (*)(const void* data, int64_t bytes);
void on_free(FreeCallback callback);

}  // namespace live_bytes
}  // namespace fsdp
