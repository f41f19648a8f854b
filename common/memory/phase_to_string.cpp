// Defines to_string(Phase) of live_bytes.h. It has a file of its own because docs/step.html, the
// web page that predicts a step, compiles this function without the rest of live_bytes.cpp.
#include <memory/live_bytes.h>

namespace fsdp {

const char* to_string(Phase phase) {
  constexpr std::array<const char*, kPhases> names{"init", "forward", "backward", "optimizer"};
  return names.at(static_cast<size_t>(phase));
}

}  // namespace fsdp
