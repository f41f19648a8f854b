#pragma once

#include <c10/core/ScalarType.h>
#include <comm/group.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp {

enum class Operation : uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, barrier };
inline constexpr size_t kOperations = 5;
const char* to_string(Operation operation);

// Names of collectives that serve no unit, in place of a unit's name. Reports count the bytes of
// each of them separately.
inline const std::string kNorm = "<norm>";
inline const std::string kMetrics = "<metrics>";
inline const std::string kState = "<state>";

// The name of a unit or a module as plain data, so that it can lie in shared memory. Keeps only the
// last 63 characters of a longer name.
class UnitName {
 public:
  UnitName() = default;
  explicit UnitName(std::string_view name);
  operator std::string_view() const { return characters_.data(); }
  std::string str() const { return characters_.data(); }
  bool is_label() const { return characters_[0] == '<'; }  // kNorm, kMetrics or kState
  friend bool operator==(const UnitName& a, const UnitName& b) = default;
  friend bool operator==(const UnitName& a, std::string_view b) { return std::string_view(a) == b; }

 private:
  std::array<char, 64> characters_{};  // the name, then zeros
};

// While this object lives, messages name `function` ("state_dict()") as the caller of this thread's
// collectives. If objects are nested, the outermost one counts.
class CallerScope {
 public:
  explicit CallerScope(const char* function) : former_(named) {
    if (named == nullptr) named = function;
  }
  ~CallerScope() { named = former_; }
  CallerScope(const CallerScope&) = delete;
  static UnitName current() { return UnitName(named == nullptr ? "" : named); }

 private:
  inline static thread_local const char* named = nullptr;
  const char* former_;
};

// One collective, as one rank has issued it. Plain data, so that it can lie in shared memory.
struct Call {
  uint64_t sequence{};  // 0, 1, 2, ... on each rank, in each of its groups
  Level level{};        // the kind of the group
  Operation operation{};
  at::ScalarType dtype{};
  uint8_t communicator{};  // the number of the Communicator, modulo 256
  // The calling thread; 0 is the main thread. Always 0 on CUDA, where autograd calls from a thread
  // of its own.
  int32_t thread{};
  int32_t root{};   // the root of a broadcast, numbered in the world
  int64_t numel{};  // elements of the larger of input and output; 0 for a barrier
  // The bytes that this rank receives by the textbook count (W ranks of a group, B bytes of the
  // larger tensor): (W-1)/W B for all-gather, reduce-scatter and broadcast; 2(W-1)/W B for
  // all-reduce, with B rounded up to a multiple of W elements; 0 for a barrier.
  int64_t bytes{};
  UnitName unit;
  UnitName caller;  // the calling function; empty: none was given

  // Returns "all_gather layers.3"; if `unit` is a label and a caller was given, "broadcast
  // state_dict()".
  std::string name() const;
  // Returns " in state_dict()"; empty if no caller was given, or if `unit` is a label.
  std::string caller_text() const;
  std::string text() const;  // "all_gather layers.3 (262144 x float, 1.0 MB) in state_dict()"
};

// Returns the value for `call.bytes` if `ranks` ranks make the call.
int64_t textbook_bytes(const Call& call, int ranks);

// Returns whether the calls of two ranks match: all fields that must not differ between ranks are
// equal (sequence, operation, dtype, root, numel, unit and caller).
bool agree(const Call& a, const Call& b);

}  // namespace fsdp
