#include <base/text.h>
#include <report/telemetry.h>
#include <train/rank_metrics.h>
#include <train/run_receipt.h>
#include <unistd.h>

#include <filesystem>

namespace fsdp {
namespace {

Sampling sampling_of(const TrainConfig& config) {
  return {.every = config.reports.receipt_sample,
          .first_step = config.checkpoint.first_step,
          .end_step = config.end_step(),
          .save_every = config.checkpoint.dir.empty() ? 0 : config.checkpoint.save_every};
}

// Returns, for each rank, the name of the rank's host.
std::vector<std::string> hosts_of_ranks(const TrainConfig& config, const RankContext& context) {
  std::vector<std::string> names;
  char here[256] = "";
  gethostname(here, sizeof here - 1);
  const int ranks = config.ranks.mode == Mode::single ? 1 : config.ranks.world;
  for (int rank = 0; rank < ranks; ++rank)
    names.emplace_back(context.hosts ? context.hosts->name_of(rank) : here);
  return names;
}

// Adds the settings and the events that rank `rank` has written to its file in `folder` to
// `receipt`. If several ranks have parts of a tensor, the leaf has the sum of their hashes.
void add_rank(const std::string& folder, int rank, const std::optional<StepRange>& steps,
              Receipt& receipt) {
  const RunHashes own = read_hashes(folder + "/rank." + std::to_string(rank), steps);
  receipt.settings = own.settings;
  // Removes first_step from the settings, because the receipt has it in its member `sampling`.
  receipt.settings.erase("first_step");
  for (const auto& [key, part] : own.events) {
    auto& [event, ranks] = receipt.leaves[key];
    event = {part.place, part.unit, event.hash + part.hash, event.numel + part.numel};
    ranks.push_back(rank);
  }
}

std::string make_receipt(const TrainConfig& config, const RankContext& context) {
  const Receipt receipt = recorded_receipt(config, context);
  const std::string root =
      write_receipt(config.reports.receipt, receipt, config.reports.receipt_key);
  // If the folder with the ranks' files can't be removed, the next run replaces it.
  std::error_code unknown;
  std::filesystem::remove_all(folder_of_ranks(config), unknown);
  return "receipt: " + config.reports.receipt + ", " +
         counted(static_cast<int64_t>(receipt.leaves.size()), "event") + ", root " + root;
}

}  // namespace

HashRecorder::Select events_of_receipt(const TrainConfig& config) {
  if (config.reports.receipt.empty()) return nullptr;
  return [sampling = sampling_of(config)](const EventKey& key) { return sampling.selects(key); };
}

std::string folder_of_ranks(const TrainConfig& config) {
  return config.reports.receipt + ".ranks";
}

Receipt recorded_receipt(const TrainConfig& config, const RankContext& context,
                         std::optional<StepRange> steps) {
  Receipt receipt{.settings = {},
                  .options = config.reports.audited_options,
                  .world = config.ranks.world,
                  .hosts = hosts_of_ranks(config, context),
                  .kernels = kernels_here(),
                  .sampling = sampling_of(config),
                  .leaves = {}};
  for (size_t rank = 0; rank < receipt.hosts.size(); ++rank)
    add_rank(folder_of_ranks(config), static_cast<int>(rank), steps, receipt);
  return receipt;
}

std::string write_run_receipt(const TrainConfig& config, const RankContext& context,
                              Communicator& comm) {
  // Waits until all ranks have written their files with the hashes of events.
  comm.barrier(kMetrics).wait();
  return comm.rank() == 0 ? make_receipt(config, context) : "";
}

}  // namespace fsdp
