#include <memory/memory_class.h>

#include <array>

namespace fsdp {
namespace {

thread_local MemoryClass scope = MemoryClass::other;

}  // namespace

const char* to_string(MemoryClass cls) {
  constexpr std::array<const char*, kMemoryClasses> names{
      "shards",          "gathered",      "gradients", "sharded_gradients",
      "optimizer_state", "communication", "other"};
  return names.at(static_cast<size_t>(cls));
}

MemoryScope::MemoryScope(MemoryClass cls) : previous_(scope) {
  scope = cls;
}

MemoryScope::~MemoryScope() {
  scope = previous_;
}

MemoryClass MemoryScope::current() {
  return scope;
}

}  // namespace fsdp
