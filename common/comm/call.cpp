#include <comm/call.h>

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace fsdp {
namespace {

// Returns a number of bytes as a text such as "12 B" or "1.0 MB".
std::string size_text(double bytes) {
  constexpr std::array<const char*, 5> units{"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < units.size(); ++unit)
    bytes /= 1000;
  std::ostringstream out;
  out << std::fixed << std::setprecision(unit == 0 ? 0 : 1) << bytes << ' ' << units.at(unit);
  return out.str();
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), ::tolower);
  return text;
}

}  // namespace

const char* to_string(Operation operation) {
  constexpr std::array<const char*, kOperations> names{"all_gather", "reduce_scatter", "all_reduce",
                                                       "broadcast", "barrier"};
  return names.at(static_cast<size_t>(operation));
}

UnitName::UnitName(std::string_view name) {
  name.remove_prefix(name.size() - std::min(name.size(), characters_.size() - 1));
  std::copy(name.begin(), name.end(), characters_.begin());
}

std::string Call::name() const {
  const bool is_known_by_caller = unit.is_label() && !(caller == "");
  return std::string(to_string(operation)) + ' ' + (is_known_by_caller ? caller : unit).str();
}

std::string Call::caller_text() const {
  return caller == "" || unit.is_label() ? "" : " in " + caller.str();
}

std::string Call::text() const {
  std::ostringstream out;
  out << name();
  if (operation == Operation::broadcast) out << " from rank " << root;
  if (operation != Operation::barrier) {
    const auto bytes = static_cast<double>(numel) * static_cast<double>(c10::elementSize(dtype));
    out << " (" << numel << " x " << lower(c10::toString(dtype)) << ", " << size_text(bytes) << ')';
  }
  return out.str() + caller_text();
}

int64_t textbook_bytes(const Call& call, int ranks) {
  const int64_t others = ranks - 1;
  const auto element = static_cast<int64_t>(c10::elementSize(call.dtype));
  switch (call.operation) {
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::broadcast:
      return others * call.numel * element / ranks;
    case Operation::all_reduce: {
      const int64_t part = (call.numel + ranks - 1) / ranks;
      return 2 * others * part * element;
    }
    case Operation::barrier:
      return 0;
  }
  return 0;
}

bool agree(const Call& a, const Call& b) {
  return a.sequence == b.sequence && a.operation == b.operation && a.dtype == b.dtype &&
         a.root == b.root && a.numel == b.numel && a.unit == b.unit && a.caller == b.caller;
}

}  // namespace fsdp
