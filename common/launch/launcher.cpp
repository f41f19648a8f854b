#include <base/processes.h>
#include <launch/launcher.h>
#include <launch/rank_process.h>
#include <launch/run_ranks.h>
#include <launch/shared_region.h>

namespace fsdp {

LaunchResult launch(int world_size, const std::function<int(const RankContext&)>& body,
                    const std::function<void()>& on_interrupt) {
  require_one_thread("launch()");
  replay_rank(world_size, body);
  BlockedSignals signals;
  return run_ranks({0, world_size, SharedRegion::create(world_size)}, signals, body, on_interrupt);
}

}  // namespace fsdp
