#pragma once

#include <comm/ledger.h>
#include <memory/live_bytes.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace fsdp {

enum class EventKind : uint8_t {
  step,       // of the trainer
  forward,    // of a module, waits included
  backward,   // likewise
  optimizer,  // clipping and update
  issue,      // of a collective; an instant
  flight,     // of a collective: from its issue to the end of its wait, or while its bytes moved
  wait,       // for a collective
  free,       // of a gathered unit's storage; an instant
};
const char* to_string(EventKind kind);

// What a rank did, and what it held then. Plain data: it lies in shared memory. Times are of the
// communicator's clock, which all ranks of a machine read alike.
struct Event {
  EventKind kind{};
  Operation operation{};        // of issue, flight and wait
  std::array<char, 64> unit{};  // unit or module; the end of the name, if it is longer
  uint64_t sequence{};          // of the collective; of a step its number
  int64_t begin{};              // [ns]
  int64_t end{};                // [ns]; begin for an instant; 0: it did not end
  int64_t bytes{};              // collectives: as LoggedCall counts them; free: of the storage
  LiveBytes live;               // [bytes] at the end; nothing for a flight
  int64_t peak{};               // [bytes] highest total since the event that ended before it

  std::string name() const { return unit.data(); }
  void set_name(std::string_view name);
  bool ended() const { return end != 0; }
  std::string text() const;  // "all_gather wait", "forward"
};
static_assert(std::is_trivially_copyable_v<Event>);

}  // namespace fsdp
