#include <base/text.h>
#include <base/whole_file.h>
#include <cuda/gpu.h>
#include <hosts/handover.h>
#include <hosts/start.h>
#include <launch/launched.h>
#include <launch/rank_context.h>
#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/poison.h>
#include <strategies/run_data.h>
#include <trace/recorder.h>
#include <trace/timeline.h>
#include <train/checkpoints.h>
#include <train/dry_run.h>
#include <train/fewer_ranks.h>
#include <train/flop_clock.h>
#include <train/print_units.h>
#include <train/surviving_run.h>
#include <train/traced_model.h>
#include <train/training_run.h>
#include <watch/watch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace fsdp {
namespace {

// The timeline of a run. The process that starts the ranks writes it when all ranks have ended,
// even if they failed.
class RunTimeline {
 public:
  RunTimeline(const TrainConfig& config, int processes) : config_(config) {
    if (!config.reports.trace.empty() || config.ranks.comm.link) log_ = EventLog::create(processes);
  }

  std::optional<Recorder> record(int rank) const {
    if (log_ == nullptr) return std::nullopt;
    return std::optional<Recorder>(std::in_place, log_, rank, config_.ranks.comm.clock);
  }

  // Writes the timeline to the file of --trace, if the option is given. Throws std::runtime_error,
  // which names the file, if it can't be written.
  void write(const std::string& failure) const {
    if (config_.reports.trace.empty()) return;
    uint64_t dropped = 0;
    for (int rank = 0; rank < log_->world_size(); ++rank)
      dropped = std::max(dropped, log_->dropped(rank));
    write_whole_file(config_.reports.trace,
                     timeline_writer(config_.reports.trace)(timeline_of(*log_, title(), failure)));
    const std::string lost =
        " (without the first " + std::to_string(dropped) + " events of a rank)";
    std::printf("timeline: %s%s\n", config_.reports.trace.c_str(), dropped > 0 ? lost.c_str() : "");
    std::fflush(stdout);
  }

 private:
  std::string title() const {
    return to_string(config_.ranks.mode) + std::string(" of ") + config_.model.name + ", " +
           counted(config_.ranks.world, "rank") +
           (config_.ranks.mode == Mode::single ? " computed one after another" : "");
  }

  const TrainConfig& config_;
  std::shared_ptr<EventLog> log_;  // the ranks' events; null: the run records no events
};

// Throws std::invalid_argument if the part of the text for training, or the part that is held out
// for evaluations, is too short for one row. Called before the ranks start.
void require_a_row_of_text(const TrainConfig& config) {
  const auto bytes = static_cast<int64_t>(config.data.text_content->size());
  const int64_t trained = bytes - bytes / 10;
  const int64_t least = config.data.eval_every > 0 ? std::min(trained, bytes / 10) : trained;
  if (least > config.training.seq) return;
  throw std::invalid_argument("--text: a row takes " + std::to_string(config.training.seq + 1) +
                              " bytes (--seq " + std::to_string(config.training.seq) +
                              "), and only " + std::to_string(least) + " of the text's are " +
                              (trained > config.training.seq ? "held out" : "trained on"));
}

}  // namespace

int run_training(const TrainConfig& given, const FsdpImplementation& fsdp,
                 const std::string& program) {
  if (given.reports.print_units) {
    print_units(given, fsdp);
    return 0;
  }
  if (given.reports.print_settings) {
    std::printf("%s\n", settings_of_run(given).dump().c_str());
    return 0;
  }
  TrainConfig config = given;
  // Under replay (FSDP_REPLAY), the rank must not overwrite the files of the recorded run.
  if (std::getenv("FSDP_REPLAY") != nullptr)
    for (std::string* file :
         {&config.reports.json, &config.reports.log, &config.reports.trace, &config.reports.profile,
          &config.reports.hashes, &config.reports.receipt})
      file->clear();
  if (config.data.kind == DataKind::text)
    config.data.text_content = text_of(config);  // reads the text once, for all ranks
  if (config.data.text_content) require_a_row_of_text(config);
  if (config.reports.dry_run) {
    dry_run(config, fsdp);
    return 0;
  }
  const int processes = config.ranks.mode == Mode::single ? 1 : config.ranks.world;
  const RunTimeline timeline(config, processes);
  const auto train = [&](const RankContext& context) {
    const nlohmann::ordered_json handed = take_over_settings(context, config);
    if (config.on_cuda()) {
      gpu::use_gpu_of(context.local_rank());
    } else {
      counting_allocator::install();
      // A run that offloads state to files has no memory to spare, so the allocator keeps only 64
      // MiB of freed blocks.
      if (!config.memory.offload_dir.empty()) counting_allocator::keep_at_most(int64_t{64} << 20);
    }
    live_bytes::enter(Phase::init);
    poison::enable(config.debug.poison);
    watch::begin(context.rank);
    at::set_num_threads(config.ranks.threads);
    if (config.ranks.flops > 0)
      config.ranks.comm.clock = std::make_shared<FlopClock>(config.ranks.flops);
    const TracedModel run = traced_model(config, fsdp);
    // The recorder is created after traced_model() has run, so it records only the training.
    const auto recorder = timeline.record(context.rank);
    train_rank(config, fsdp, context, run, handed);
    return 0;
  };
  std::function<int(int)> after_loss;
  if (config.ranks.on_lost_host == OnLostHost::continue_training &&
      config.shards() < config.ranks.world)
    after_loss = [&config](int ranks) { return ranks_that_go_on(config, ranks); };
  const int status = start(
      processes, train, program,
      [&](const std::string& failure) {
        try {
          timeline.write(failure);
          return true;
        } catch (const std::runtime_error& error) {
          std::fprintf(stderr, "%s: the timeline %s\n", program.c_str(), error.what());
          return false;
        }
      },
      config.ranks.comm.timeout, after_loss);
  const auto self = launched_rank();
  const auto& fault = config.ranks.comm.fault;
  if (status == 0 && fault && (!self || self->rank == fault->rank)) {
    std::fprintf(stderr, "%s: --fault was not reached: rank %d made fewer than %s calls\n",
                 program.c_str(), fault->rank, std::to_string(fault->at + 1).c_str());
  }
  return status;
}

}  // namespace fsdp
