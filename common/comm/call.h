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

// A collective that serves no unit has one of these labels in place of a unit's name: kNorm for
// gradient norms, kMetrics for losses and other measurements, kState for checkpoints and checks.
// Reports count the bytes of each label separately.
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
  // Returns whether this name is a label (kNorm, kMetrics or kState), not the name of a unit.
  bool is_label() const { return characters_[0] == '<'; }
  friend bool operator==(const UnitName& a, const UnitName& b) = default;
  friend bool operator==(const UnitName& a, std::string_view b) { return std::string_view(a) == b; }

 private:
  std::array<char, 64> characters_{};  // the name, padded with zeros
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
  // Number of the call among the calls of this rank in this group: 0, 1, 2, ...
  uint64_t sequence{};
  // The kind of the group that makes the call: all ranks (world), the ranks that hold the shards of
  // one replica (shards), or the ranks that hold the replicas of one shard (replicas).
  Level level{};
  Operation operation{};
  at::ScalarType dtype{};
  uint8_t communicator{};  // the number of the Communicator, modulo 256
  // The thread that issued the call; 0 is the main thread. Always 0 on CUDA, where autograd calls
  // from a thread of its own.
  int32_t thread{};
  int32_t root{};   // in a broadcast: global rank of the root
  int64_t numel{};  // elements of the larger of input and output; 0 for a barrier
  // The bytes that this rank receives by the textbook count (W ranks of a group, B bytes of the
  // larger tensor): (W-1)/W B for all-gather, reduce-scatter and broadcast; 2(W-1)/W B for
  // all-reduce, with B rounded up to a multiple of W elements; 0 for a barrier.
  int64_t bytes{};
  UnitName unit;
  UnitName caller;  // the function that CallerScope names: "state_dict()"; empty: no CallerScope

  // Returns the operation and the unit: "all_gather layers.3". If `unit` is a label such as kState
  // and `caller` is not empty, the caller stands in place of the unit: "broadcast state_dict()".
  std::string name() const;
  // Returns the caller as the end of a message: " in state_dict()". Returns "" if `caller` is
  // empty, or if `unit` is a label, because name() then has the caller.
  std::string caller_text() const;
  // Returns the call as a text for messages: "all_gather layers.3 (262144 x float, 1.0 MB) in
  // state_dict()".
  std::string text() const;
};

// Returns the value of Call::bytes if `ranks` ranks make `call`: the bytes that each rank receives.
int64_t textbook_bytes(const Call& call, int ranks);

// Returns whether the calls of two ranks match: all fields that must not differ between ranks are
// equal (sequence, operation, dtype, root, numel, unit and caller).
bool agree(const Call& a, const Call& b);

}  // namespace fsdp
