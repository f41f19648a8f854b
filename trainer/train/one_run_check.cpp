#include <agreement/same_on_all_ranks.h>
#include <base/whole_file.h>
#include <c10/util/ScopeExit.h>
#include <train/checkpoints.h>
#include <train/one_run_check.h>
#include <train/rank_metrics.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp {
namespace {

// Collective. Throws std::runtime_error if one of `traits` differs between ranks. The message
// begins with the first rank whose value differs from rank 0's value, as "rank 3 on host-b ";
// `complaint` returns the rest of the message.
using Complaint = std::function<std::string(const std::string& what, const std::string& of_rank_0,
                                            const std::string& of_rank)>;
void require_same(const std::vector<RankInvariant>& traits, const RankContext& context,
                  Communicator& comm, const Complaint& complaint) {
  const auto difference = difference_between_ranks(comm, traits, "give every rank the same");
  if (!difference) return;
  const auto& values = difference->of_ranks;
  const auto other = std::ranges::find_if(values, [&](const auto& v) { return v != values[0]; });
  const auto rank = static_cast<int>(other - values.begin());
  throw std::runtime_error("rank " + std::to_string(rank) + " on " + context.hosts->name_of(rank) +
                           ' ' + complaint(difference->what, values[0], *other));
}

// Returns what must be equal on all ranks: the settings of the run, each named after its option,
// and the number of steps of the checkpoint that the run resumes.
std::vector<RankInvariant> traits_of_run(const TrainConfig& config) {
  const std::map<std::string, std::string> others{
      {"recipe", "--data"},
      {"scales_loss", "--loss-scale"},
      {"text_sha256", "the SHA-256 of the text"},
      {"text_held_out", "the held-out part of the text"},
      {"tokens", "the sizes of the files of --tokens"}};
  std::vector<RankInvariant> traits;
  const auto settings = settings_of_run(config);
  for (const auto& [name, value] : settings.items()) {
    const auto other = others.find(name);
    std::string option = "--" + name;
    std::ranges::replace(option, '_', '-');
    traits.push_back({other != others.end() ? other->second : option, value.dump(), {}});
  }
  traits.push_back({"--save-async", config.checkpoint.async ? "true" : "false", {}});
  traits.push_back(
      {"the number of steps of the checkpoint", std::to_string(config.checkpoint.first_step), {}});
  return traits;
}

}  // namespace

void require_one_run(const TrainConfig& config, const RankContext& context, Communicator& comm) {
  if (!context.hosts) return;
  if (config.ranks.on_lost_host == OnLostHost::continue_training &&
      config.shards() < config.ranks.world &&
      !context.on_one_host(Group::shards(context.rank, config.ranks.world, config.shards())))
    throw std::runtime_error("rank " + std::to_string(context.rank) +
                             ": --on-lost-host continue needs each replica on one host (" +
                             context.hosts->text() + "); give another --shard-size");
  require_same(traits_of_run(config), context, comm,
               [](const auto& what, const auto& of_rank_0, const auto& of_rank) {
                 return "was started with other options, another text or another checkpoint than "
                        "rank 0: " +
                        what + ": " + of_rank_0 + " on rank 0, " + of_rank +
                        " here; all ranks need the same";
               });
  if (config.checkpoint.dir.empty() || !context.hosts->several()) return;
  const auto seen = std::filesystem::path(config.checkpoint.dir) /
                    (".seen-by-all-hosts-" + std::to_string(gather_from_ranks(comm, getpid())[0]));
  const auto remove = c10::make_scope_exit([&] {
    std::error_code unknown;
    if (context.rank == 0) std::filesystem::remove(seen, unknown);
  });
  if (context.rank == 0) {
    std::filesystem::create_directories(config.checkpoint.dir);
    write_whole_file(seen, "");
  }
  comm.barrier(kState).wait();
  require_same({{"whether the rank sees it", std::filesystem::exists(seen) ? "yes" : "no", {}}},
               context, comm, [&](const auto&, const auto&, const auto&) {
                 return "does not see --checkpoint-dir " + config.checkpoint.dir +
                        " of rank 0: it must lie on a file system that all hosts share";
               });
}

}  // namespace fsdp
