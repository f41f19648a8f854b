#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp {

struct CallHistory;

enum class Operation : uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, barrier };
const char* to_string(Operation operation);

// One rank's call of one collective, as the other ranks see it. Plain data: it lies in shared
// memory.
struct CallRecord {
  uint64_t sequence{};  // 0, 1, 2, ... on each rank
  Operation operation{};
  at::ScalarType dtype{};
  int32_t root{};       // broadcast's
  int64_t numel{};      // elements of the larger of input and output
  int64_t issued_at{};  // [ns], by the clock of communicator options
  uint64_t address{};   // where the transport reads this rank's data; 0 if it needs none
  char unit[72]{};      // the end of the name, if it is longer

  void set_unit(const std::string& name);
  std::string text() const;  // "all_gather layers.3 (262144 x float, 1.0 MB)"
};

// Whether two ranks' records are of one call.
bool agree(const CallRecord& a, const CallRecord& b);

// The ranks' calls, written where all ranks can read them: a ring of records per rank and, for each
// record, the stage its rank has reached. Every collective is compared here before its result is
// used: a rank that skips a call would otherwise pair its next one with the others' last.
// A call's stages: 1 when published, then one more at each advance().
class Ledger {
 public:
  static constexpr uint64_t kRing = 64;  // calls that may lie between a call and its wait

  // Bytes of shared, zeroed memory that `world_size` ranks need.
  static size_t bytes(int world_size);

  Ledger(void* shared, int rank, int world_size, std::chrono::milliseconds timeout);

  // Writes this rank's next call, which takes the place of the one kRing before it. Throws
  // std::logic_error if this rank never waited for that one, and waits until the others have.
  void publish(const CallRecord& record);

  // As publish(), for a call that no rank will compare: waits for nobody.
  void note(const CallRecord& record);

  // Compares call `sequence` with those of the ranks that have published theirs. Throws as check().
  void compare(uint64_t sequence);

  // Waits until every rank has published call `sequence` and they agree in operation, unit, size,
  // dtype and root. Throws CollectiveError, which tells both sides or the rank that is missing.
  void check(uint64_t sequence);

  // Raises this rank's stage of call `sequence` by one. The first advance says that this rank has
  // waited for the call; one that reads records after it waits for the others' last stage too.
  void advance(uint64_t sequence);

  // Waits until every rank has reached `stage` of call `sequence`. Throws CollectiveError, naming
  // the rank that has not come so far.
  void wait_for_all(uint64_t sequence, uint32_t stage);

  // Whether every rank has reached it already.
  bool all_reached(uint64_t sequence, uint32_t stage) const;

  // What `rank` published as call `sequence`. Valid once check(sequence) has returned and until
  // this rank has advanced to the call's last stage.
  const CallRecord& record(int rank, uint64_t sequence) const;

  // The number of calls that `rank` has published so far, which is the sequence of its next.
  uint64_t published(int rank) const;

  // "#16 reduce_scatter layers.4", the last call that `rank` published; empty if there is none.
  std::string last_call(int rank) const;

 private:
  struct Entry;
  struct RankPage;
  Entry& entry(int rank, uint64_t sequence) const;
  void wait(int rank, uint64_t sequence, uint32_t stage) const;
  bool comes(int rank, uint64_t sequence, uint32_t stage, std::chrono::milliseconds limit) const;
  void require_agreement(int rank, uint64_t sequence) const;
  std::string timeout_text(int rank, uint64_t sequence) const;
  std::vector<CallHistory> histories() const;

  RankPage* pages_;  // [world_size], shared by all ranks
  int rank_;
  int world_size_;
  int spins_;  // looks at a stage before this rank sleeps
  std::chrono::milliseconds timeout_;
};

// A collective that can't complete: the ranks disagree, or one of them did not come.
struct CollectiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace fsdp
