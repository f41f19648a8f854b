#include <receipt/sampling.h>

namespace fsdp {
namespace {

// Returns `value` with its bits mixed, as the finalizer of SplitMix64 mixes them: Steele, Lea,
// Flood, "Fast Splittable Pseudorandom Number Generators" (2014).
uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Returns a number that depends on every member of `key` and that every run of the program computes
// equally.
uint64_t number_of(const EventKey& key) {
  uint64_t number = mixed(static_cast<uint64_t>(key.step));
  number = mixed(number ^ static_cast<uint64_t>(key.part));
  number = mixed(number ^ static_cast<uint64_t>(key.what));
  for (const char letter : key.name)
    number = mixed(number ^ static_cast<unsigned char>(letter));
  return number;
}

}  // namespace

bool Sampling::selects(const EventKey& key) const {
  switch (key.what) {
    case TensorKind::loss:
    case TensorKind::norm:
      return true;
    case TensorKind::initial:
      return key.step == first_step;
    case TensorKind::m:
    case TensorKind::v:
      return key.step + 1 == end_step;
    case TensorKind::gathered:
      return false;
    case TensorKind::updated:
      if (key.step + 1 == end_step) return true;
      if (save_every > 0 && (key.step + 1) % save_every == 0) return true;
      break;
    default:
      break;
  }
  return number_of(key) % static_cast<uint64_t>(every) == 0;
}

}  // namespace fsdp
