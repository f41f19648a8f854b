#pragma once

#include <memory/memory_class.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

// The exact bytes of tensor storage that are alive in this process, by MemoryClass. They are
// counted where storage is allocated and freed, so the count includes memory that only a view keeps
// alive, and counting needs no GPU. A block that an allocator keeps for reuse is not alive. In a
// rank on a GPU, only the GPU's memory is counted, not the host's.
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

LiveBytes now();              // the live bytes at this moment
LiveBytes peak();             // highest live bytes since the last enter(), by class and in total
LiveBytes peak(Phase phase);  // highest live bytes at all times in `phase` since reset(phase)
int64_t peak_total();         // maximum of the total of live bytes since the process began
int64_t take_peak();          // maximum of the total of live bytes since the last take_peak()
void enter(Phase phase);      // begins `phase`; peak() restarts from the bytes alive now
void reset(Phase phase);      // forgets the peaks of `phase`

// Excludes the work that is done while this object lives from the run's peaks: the destructor
// restores the peaks and the phase from before. Bytes that were allocated meanwhile and stay
// allocated count as live; the peaks include them from the next allocation on.
class [[nodiscard]] ScopedPeaks {
 public:
  ScopedPeaks();
  ~ScopedPeaks();
  ScopedPeaks(const ScopedPeaks&) = delete;
  struct Peaks;

 private:
  std::unique_ptr<Peaks> before_;
};

// Called by allocators. Adds `bytes`, which may be negative, to the live bytes of `cls`.
void add(MemoryClass cls, int64_t bytes);

// Called by allocators when they free a block of `bytes` at `data`. Subtracts these bytes from the
// live bytes of `cls`, then calls the callback of on_free().
void remove(MemoryClass cls, int64_t bytes, const void* data);

// on_free() sets the function that remove() calls for each freed block, in place of the previous
// function. If `callback` is null, remove() calls none.
using FreeCallback = void (*)(const void* data, int64_t bytes);
void on_free(FreeCallback callback);

}  // namespace live_bytes
}  // namespace fsdp
