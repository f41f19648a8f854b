#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp {

// The purpose of a block of memory.
enum class MemoryClass : uint8_t {
  shards,     // sharded parameters
  gathered,   // unsharded parameters
  gradients,  // unsharded gradients, flat
  sharded_gradients,
  optimizer_state,  // moments and step counts
  communication,    // staging buffers of the transports between ranks
  other,            // activations, temporaries, data
};
inline constexpr size_t kMemoryClasses = 7;
const char* to_string(MemoryClass cls);

// While this object lives, the memory that its thread allocates is counted into live_bytes as
// `cls`. If scopes are nested, the innermost one counts.
class [[nodiscard]] MemoryScope {
 public:
  explicit MemoryScope(MemoryClass cls);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;  // a copy would end the scope twice
  MemoryScope& operator=(const MemoryScope&) = delete;

  // Returns the class as which memory that this thread allocates is counted now: `cls` of the
  // innermost MemoryScope; MemoryClass::other if there is none.
  static MemoryClass current();

 private:
  MemoryClass previous_;
};

}  // namespace fsdp
