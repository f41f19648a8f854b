#include <base/text.h>
#include <launch/launched.h>
#include <memory/counting_allocator.h>
#include <report/telemetry.h>
#include <train/checkpoint_room.h>
#include <train/dry_run.h>
#include <train/keep_fp32_check.h>
#include <train/memory_check.h>
#include <train/muon_groups.h>
#include <train/run_report.h>
#include <train/traced_model.h>

#include <cstdio>
#include <string>

namespace fsdp {
namespace {

// Returns the transport that the ranks of one machine use.
std::string transport_of(const TrainConfig& config) {
  const std::string& given = config.ranks.comm.backend;
  return given == "auto" ? "shm" : given;
}

std::string what_is_trained(const TrainConfig& config, const ShardLayout& layout) {
  return to_string(config.ranks.mode) + std::string(" of ") + config.model.name + " (" +
         with_commas(layout.numel()) + " parameters, " + with_commas(trained_numel(layout)) +
         " trained), " + counted(config.ranks.world, "rank") + ", batch " +
         std::to_string(config.training.batch) + " x " + std::to_string(config.training.seq) +
         " tokens, " + counted(config.training.steps, "step");
}

}  // namespace

void dry_run(const TrainConfig& config, const FsdpImplementation& fsdp) {
  const auto self = launched_rank();
  if (self && self->rank > 0) return;
  if (!config.on_cuda()) counting_allocator::install();
  const TracedModel run = traced_model(config, fsdp);
  check_keep_fp32(config, run.layout);
  std::string text = what_is_trained(config, run.layout) + "\n";
  const std::string muon = describe_muon(config, run.layout);
  if (!muon.empty()) text += muon + "\n";
  const Transports transports(transport_of(config));
  const Schedule step = schedule(config, run.layout, /*rank=*/0, /*first=*/false, run.traces);
  const int64_t peak = predict_memory(step, transports).peak.bytes.total;
  const bool complete = run.traces && run.traces->has_activations;
  text += "peak of a rank: " + with_commas(peak) + " bytes of tensors" +
          (complete ? "" : ", without activations") + "\n";
  if (!config.on_cuda()) {
    const int processes = config.ranks.mode == Mode::single || self ? 1 : config.ranks.world;
    require_enough_memory(config, run.layout, run.traces, transports, processes,
                          memory_of_machine());
  }
  if (!config.checkpoint.dir.empty())
    require_room_for_checkpoints(config, run.layout, room_for_checkpoints(config));
  std::printf("%sdry run: the options are right, and nothing was trained\n", text.c_str());
  std::fflush(stdout);
}

}  // namespace fsdp
