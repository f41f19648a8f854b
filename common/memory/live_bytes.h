#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// Exact bytes of tensor storage alive in this process, by what they are for. Counted where storage
// is allocated and freed, so a view that keeps memory alive is seen, and needs no GPU. Blocks that
// an allocator keeps for reuse are not alive.
namespace c10 {
class DataPtr;
}

namespace fsdp {

enum class MemoryClass : uint8_t {
  shards,     // sharded parameters
  gathered,   // unsharded parameters
  gradients,  // unsharded gradients, flat
  sharded_gradients,
  optimizer_state,  // moments and step counts
  communication,    // staging of transports, DDP's buckets
  rest,             // activations, temporaries, data
};
inline constexpr size_t kMemoryClasses = 7;
const char* to_string(MemoryClass cls);

enum class Phase : uint8_t { init, forward, backward, optimizer };
inline constexpr size_t kPhases = 4;
const char* to_string(Phase phase);

// While it lives, what this thread allocates belongs to `cls`.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryClass cls);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryClass previous_;
};

struct LiveBytes {
  std::array<int64_t, kMemoryClasses> by_class{};
  int64_t total{};

  int64_t operator[](MemoryClass cls) const { return by_class[static_cast<size_t>(cls)]; }
};

namespace live_bytes {

// Puts the counting CPU allocator in place. To be called once per process, before its first tensor.
void install();

LiveBytes now();              // [bytes] alive
LiveBytes peak();             // [bytes] each class's own maximum, and the total's, since enter()
LiveBytes peak(Phase phase);  // the same over every time the phase was entered since its reset()
int64_t peak_total();         // [bytes] the total's maximum since install()
int64_t take_peak();          // [bytes] the total's maximum since the last take_peak()
void enter(Phase phase);      // the peaks of `phase` go on from what is alive now
void reset(Phase phase);      // forgets its peaks

// From now on this block belongs to `cls`, whatever it was allocated for. Nothing happens to blocks
// that are not counted, and to those of the CPU that another allocator than install()'s has made.
void reclassify(const c10::DataPtr& block, MemoryClass cls);

// For allocators that count themselves in: the class of a block to come, its birth and its death.
MemoryClass current_class();
void add(MemoryClass cls, int64_t bytes);
void remove(MemoryClass cls, int64_t bytes, const void* data);

// From now on `callback` is told of every block that was removed. There is one; null: none.
using FreeCallback = void (*)(const void* data, int64_t bytes);
void on_free(FreeCallback callback);

}  // namespace live_bytes
}  // namespace fsdp
