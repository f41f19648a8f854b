#include <base/whole_file.h>
#include <c10/util/ScopeExit.h>
#include <train/checkpoints.h>
#include <train/one_run.h>
#include <train/over_ranks.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <stdexcept>

namespace fsdp {
namespace {

// Throws if `value` of some rank is another than that of rank 0.
void require_equal(int64_t value, const RankContext& context, Communicator& comm,
                   const std::string& complaint) {
  const auto values = gather_from_ranks(comm, value);
  for (size_t rank = 1; rank < values.size(); ++rank)
    if (values[rank] != values[0])
      throw std::runtime_error("rank " + std::to_string(rank) + " on " +
                               context.hosts->name_of(static_cast<int>(rank)) + ' ' + complaint);
}

}  // namespace

void require_one_run(const TrainConfig& config, const RankContext& context, Communicator& comm) {
  if (!context.hosts) return;
  if (config.on_lost_host == "continue" && config.shards() < config.world &&
      !context.on_one_host(Group::shards(context.rank, config.world, config.shards())))
    throw std::runtime_error("rank " + std::to_string(context.rank) +
                             ": --on-lost-host continue needs each replica on one host (" +
                             context.hosts->text() + "); give another --shard-size");
  const std::string settings = settings_of_run(config).dump() + std::to_string(config.first_step);
  require_equal(static_cast<int64_t>(std::hash<std::string>{}(settings)), context, comm,
                "was started with other options, another text or another checkpoint than rank 0: "
                "all ranks need the same");
  if (config.checkpoint_dir.empty() || !context.hosts->several()) return;
  const auto seen = std::filesystem::path(config.checkpoint_dir) /
                    (".seen-by-all-hosts-" + std::to_string(gather_from_ranks(comm, getpid())[0]));
  const auto remove = c10::make_scope_exit([&] {
    std::error_code unknown;
    if (context.rank == 0) std::filesystem::remove(seen, unknown);
  });
  if (context.rank == 0) {
    std::filesystem::create_directories(config.checkpoint_dir);
    write_whole_file(seen, "");
  }
  comm.barrier(kState).wait();
  require_equal(std::filesystem::exists(seen), context, comm,
                "does not see --checkpoint-dir " + config.checkpoint_dir +
                    " of rank 0: it must lie on a file system that all hosts share");
}

}  // namespace fsdp
