#include <memory/live_bytes.h>
#include <planning/trace_on_meta.h>
#include <prediction/model_trace.h>
#include <strategies/root_readers.h>
#include <strategies/run_data.h>
#include <train/run_workload.h>
#include <train/traced_model.h>
#include <train/validation.h>

#include <memory>

namespace fsdp {

TracedModel traced_model(const TrainConfig& config, const FsdpImplementation& fsdp) {
  const live_bytes::ScopedPeaks peaks;
  const std::shared_ptr<const Dataset> dataset = make_dataset(config);
  std::optional<Validation> held_out;  // alive during the traces, as in a run
  if (config.data.eval_every > 0) held_out.emplace(config, *dataset);
  const Workload workload = workload_of_run(config, fsdp, dataset);
  TracedModel run{fsdp.shard_layout(config, workload), std::nullopt};
  if (fsdp.construct_on_meta == nullptr) return run;
  if (!config.on_cuda()) {
    try {
      run.traces = trace_on_meta(config, workload, run.layout, fsdp.construct_on_meta);
      return run;
      // The bytes of the model's activations can't be predicted.
    } catch (const c10::NotImplementedError&) {
    }
  }
  std::shared_ptr<Module> model;
  fsdp.construct_on_meta([&] { model = workload.build(); });
  run.traces =
      chain_of(config, run.layout, /*times=*/{}, units_before_root_readers(*model, run.layout));
  return run;
}

}  // namespace fsdp
