#pragma once

#include <comm/call.h>
#include <comm/rank_status.h>

#include <string>
#include <vector>

namespace fsdp {

// What a rank has called, as far as the other ranks can see.
struct CallHistory {
  std::vector<Call> calls;  // the latest ones, oldest first
  RankStatus status{};

  const Call* find(uint64_t sequence) const;  // null if it is not among them
  bool has_called_for(std::string_view unit) const;
};

// Explains call `sequence`, which the ranks of `group` called differently: what each side called,
// the likely cause, and the last five calls of every rank side by side. Several lines of at most
// 100 columns.
std::string describe_mismatch(uint64_t sequence, const Group& group,
                              const std::vector<CallHistory>& ranks);

// Explains why rank `missing` of the group may not have come to call `sequence`: the likely cause
// and the last five calls, as above. It follows the line that names the rank.
std::string describe_missing_rank(uint64_t sequence, int missing, const Group& group,
                                  const std::vector<CallHistory>& ranks);

}  // namespace fsdp
