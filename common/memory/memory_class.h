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
  communication,    // staging of transports
  other,            // activations, temporaries, data
};
inline constexpr size_t kMemoryClasses = 7;
const char* to_string(MemoryClass cls);

// While this object lives, the memory that its thread allocates is counted into `cls`. If scopes
// are nested, the innermost one counts.
class [[nodiscard]] MemoryScope {
 public:
  explicit MemoryScope(MemoryClass cls);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;  // each scope ends once
  MemoryScope& operator=(const MemoryScope&) = delete;

  static MemoryClass current();  // of this thread; `other` outside of every scope

 private:
  MemoryClass previous_;
};

}  // namespace fsdp
