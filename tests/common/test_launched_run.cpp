#include <comm/communicator.h>
#include <comm/communicator_options.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <testing/channel.h>
#include <testing/multi_rank.h>

#include "collectives.h"
#include "torchrun.h"

namespace fsdp {
namespace {

using namespace std::chrono_literals;
using Body = std::function<int(const RankContext&)>;

Body collectives(std::vector<Channel>& channels, const std::string& backend = "auto") {
  return [&channels, backend](const RankContext& context) {
    const auto comm = Communicator::create(context, {.backend = backend, .timeout = 10s});
    if (backend == "auto" && comm->backend() != "shm")
      throw std::logic_error("auto is " + comm->backend());
    send_collectives(*comm, context.rank, channels[context.rank]);
    return 0;
  };
}

MULTI_RANK_SUITE_ON(LaunchedRun, 1, 2, 3);

// The ranks meet once in a store that torchrun hosts, and once in one that rank 0 hosts.
MULTI_RANK_TEST(LaunchedRun, ranks_that_torchrun_launched_compute_the_same_bits_as_forked_ranks) {
  std::vector<Channel> forked(world_size());
  ASSERT_TRUE(launch(world_size(), collectives(forked)).ok());
  const HostedStore store;
  const ReservedPort port;
  for (const auto& [backend, hosted] :
       {std::pair<std::string, bool>("auto", true), {"gloo", false}}) {
    std::vector<Channel> joined(world_size());
    const Ended ended =
        torchrun(world_size(), hosted ? store.port() : port.number(), collectives(joined, backend),
                 {{"TORCHELASTIC_USE_AGENT_STORE", hosted ? "True" : "False"}});
    EXPECT_EQ(ended.said, "");
    EXPECT_EQ(ended.statuses, std::vector<int>(world_size(), 0));
    for (int rank = 0; rank < world_size(); ++rank) {
      ASSERT_EQ(forked[rank].frames().size(), 4u);
      EXPECT_EQ(joined[rank].frames(), forked[rank].frames()) << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace fsdp
