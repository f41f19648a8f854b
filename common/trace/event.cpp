#include <trace/event.h>

#include <array>

namespace fsdp {

const char* to_string(EventKind kind) {
  constexpr std::array<const char*, kEventKinds> names{"step",  "forward", "backward", "optimizer",
                                                       "issue", "flight",  "wait",     "free"};
  return names.at(static_cast<size_t>(kind));
}

bool Event::of_collective() const {
  return kind == EventKind::issue || kind == EventKind::flight || kind == EventKind::wait;
}

std::string Event::text() const {
  return (of_collective() ? to_string(call.operation) + std::string(" ") : "") + to_string(kind);
}

}  // namespace fsdp
