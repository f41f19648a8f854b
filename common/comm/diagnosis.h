#pragma once

#include <comm/call.h>
#include <comm/rank_status.h>

#include <string>
#include <vector>

namespace fsdp {

// The latest calls of a rank, as far as the other ranks can see them.
struct CallHistory {
  std::vector<Call> calls;  // the oldest call first
  RankStatus status{};

  // Returns the call with this sequence; null if `calls` does not have it.
  const Call* find(uint64_t sequence) const;
  bool has_called_for(std::string_view unit) const;
};

// Explains call `sequence`, in which the ranks of `group` differ: what each side called, the likely
// cause, and the last five calls of every rank side by side. Returns several lines; those of the
// cause and of the last calls have at most 100 columns.
std::string describe_mismatch(uint64_t sequence, const Group& group,
                              const std::vector<CallHistory>& ranks);

// Explains why rank `missing` of the group may not have called, or not have completed, call
// `sequence`: the likely cause, and the last five calls of every rank side by side. The text
// continues a message whose first line names the rank.
std::string describe_missing_rank(uint64_t sequence, int missing, const Group& group,
                                  const std::vector<CallHistory>& ranks);

}  // namespace fsdp
