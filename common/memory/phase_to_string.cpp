// Defines to_string(Phase) of live_bytes.h. It is not in live_bytes.cpp because the web page of a
// step has no allocator to count, and needs only this function.
#include <memory/live_bytes.h>

namespace fsdp {

const char* to_string(Phase phase) {
  constexpr std::array<const char*, kPhases> names{"init", "forward", "backward", "optimizer"};
  return names.at(static_cast<size_t>(phase));
}

}  // namespace fsdp
