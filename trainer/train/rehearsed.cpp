#include <strategies/data_of_run.h>
#include <train/held_out.h>
#include <train/rehearsed.h>

#include <utility>

namespace fsdp {

Workload workload_of_run(const TrainConfig& config, const FsdpImplementation& fsdp,
                         std::shared_ptr<const Dataset> dataset) {
  Workload workload = language_modeling(config, std::move(dataset));
  if (config.checkpoint_every == 0) return workload;
  workload.build = [build = workload.build, checkpoint_blocks = fsdp.checkpoint_blocks,
                    every = config.checkpoint_every] {
    auto model = build();
    checkpoint_blocks(*model, every);
    return model;
  };
  return workload;
}

std::optional<ModelTraces> rehearsed(const TrainConfig& config, const FsdpImplementation& fsdp) {
  if (config.on_cuda() || fsdp.construct_on_meta == nullptr) return std::nullopt;
  const live_bytes::Rehearsal peaks;
  const std::shared_ptr<const Dataset> dataset = make_dataset(config);
  std::optional<HeldOut> held_out;  // as a run has it
  if (config.eval_every > 0) held_out.emplace(config, *dataset);
  const Workload workload = workload_of_run(config, fsdp, dataset);
  try {
    return rehearse(config, workload, fsdp.shard_layout(config, workload), fsdp.construct_on_meta);
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  }
}

}  // namespace fsdp
