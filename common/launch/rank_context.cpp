#include <launch/rank_context.h>

#include <algorithm>
#include <numeric>

namespace fsdp {

std::vector<int> RankContext::local_ranks() const {
  if (hosts) return hosts->ranks_of(hosts->this_host());
  std::vector<int> all(static_cast<size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int RankContext::local_rank() const {
  const auto here = local_ranks();
  return static_cast<int>(std::find(here.begin(), here.end(), rank) - here.begin());
}

}  // namespace fsdp
