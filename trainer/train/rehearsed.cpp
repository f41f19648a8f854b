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

Rehearsed rehearsed(const TrainConfig& config, const FsdpImplementation& fsdp) {
  const live_bytes::Rehearsal peaks;
  const std::shared_ptr<const Dataset> dataset = make_dataset(config);
  std::optional<HeldOut> held_out;  // as a run has it
  if (config.eval_every > 0) held_out.emplace(config, *dataset);
  const Workload workload = workload_of_run(config, fsdp, dataset);
  Rehearsed run{fsdp.shard_layout(config, workload), std::nullopt};
  if (config.on_cuda() || fsdp.construct_on_meta == nullptr) return run;
  try {
    run.traces = rehearse(config, workload, run.layout, fsdp.construct_on_meta);
  } catch (const c10::NotImplementedError&) {  // its bytes are not predicted
  }
  return run;
}

}  // namespace fsdp
