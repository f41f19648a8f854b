#include <nn/random_scope.h>

namespace fsdp {
namespace {

// Returns a number all of whose bits depend on all bits of `value` (the finalizer of SplitMix64).
uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

}  // namespace

RandomScope::RandomScope(c10::Device device, uint64_t seed, int64_t step, int64_t microbatch)
    : before_(device) {
  const uint64_t of_step = mixed(mixed(seed) ^ static_cast<uint64_t>(step));
  before_.seed(mixed(of_step ^ static_cast<uint64_t>(microbatch)));
}

RandomScope::~RandomScope() {
  before_.restore();
}

}  // namespace fsdp
