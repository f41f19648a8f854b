#pragma once

#include <comm/ledger.h>

#include <string>
#include <vector>

namespace fsdp {

// What a rank has called, as far as the other ranks can see.
struct CallHistory {
  std::vector<CallRecord> calls;  // the latest ones, oldest first

  const CallRecord* find(uint64_t sequence) const;  // null if it is not among them
};

// The story of call `sequence`, which the ranks called differently: the sides, the likely cause and
// the last five calls of every rank side by side. Several lines of at most 100 columns.
std::string tell_difference(uint64_t sequence, const std::vector<CallHistory>& ranks);

// What follows the line that says that rank `missing` did not come to call `sequence` within the
// time limit: the likely cause and the last five calls, as above.
std::string tell_missing(uint64_t sequence, int missing, const std::vector<CallHistory>& ranks);

}  // namespace fsdp
