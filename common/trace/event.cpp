#include <trace/event.h>

#include <algorithm>

namespace fsdp {

const char* to_string(EventKind kind) {
  constexpr std::array<const char*, 8> names{"step",  "forward", "backward", "optimizer",
                                             "issue", "flight",  "wait",     "free"};
  return names.at(static_cast<size_t>(kind));
}

void Event::set_name(std::string_view name) {
  const size_t length = std::min(name.size(), unit.size() - 1);
  unit.fill(0);
  std::copy(name.end() - static_cast<std::ptrdiff_t>(length), name.end(), unit.begin());
}

std::string Event::text() const {
  const bool collective =
      kind == EventKind::issue || kind == EventKind::flight || kind == EventKind::wait;
  return (collective ? to_string(operation) + std::string(" ") : "") + to_string(kind);
}

}  // namespace fsdp
