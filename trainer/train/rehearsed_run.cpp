#include <memory/live_bytes.h>
#include <planning/rehearsal.h>
#include <strategies/run_data.h>
#include <train/held_out.h>
#include <train/rehearsed_run.h>
#include <train/run_workload.h>

#include <memory>

namespace fsdp {

Rehearsed rehearsed(const TrainConfig& config, const FsdpImplementation& fsdp) {
  const live_bytes::Rehearsal peaks;
  const std::shared_ptr<const Dataset> dataset = make_dataset(config);
  std::optional<HeldOut> held_out;  // as a run has it
  if (config.data.eval_every > 0) held_out.emplace(config, *dataset);
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
