#include <memory/live_bytes.h>

namespace fsdp {

const char* to_string(Phase phase) {
  constexpr std::array<const char*, kPhases> names{"init", "forward", "backward", "optimizer"};
  return names.at(static_cast<size_t>(phase));
}

}  // namespace fsdp
