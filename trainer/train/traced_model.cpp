#include <base/todo.h>
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
namespace {

ShardLayout layout_of_one_unit(const Module& model, int world_size) {
  ShardLayout layout{world_size, {{"root", 0, /*root=*/true, /*trainable=*/false}}, {}};
  auto& [name, padded_numel, root, trainable] = layout.units[0];
  for (const NamedParameter& parameter : distinct_parameters(model)) {
    const bool trains = parameter.tensor.requires_grad();
    const int64_t numel = parameter.tensor.numel();
    layout.parameters.push_back(
        {parameter.name, 0, padded_numel, numel, trains, parameter.tensor.sizes().vec()});
    padded_numel += round_up(numel, kAlignment);
    trainable |= trains;
  }
  padded_numel = round_up(padded_numel, kAlignment * world_size);
  return layout;
}

TracedModel traced_model(const TrainConfig& config, const FsdpImplementation& fsdp,
                         const Workload& workload) {
  TracedModel run{fsdp.shard_layout(config, workload), std::nullopt};
  if (fsdp.construct_on_meta == nullptr) return run;
  if (!config.on_cuda()) {
    try {
      run.traces = trace_on_meta(config, workload, run.layout, fsdp.construct_on_meta);
      return run;
    } catch (const c10::NotImplementedError&) {
      // If an operator has no meta kernel, the bytes of activations can't be predicted.
    }
  }
  std::shared_ptr<Module> model;
  fsdp.construct_on_meta([&] { model = workload.build(); });
  run.traces =
      chain_of(config, run.layout, /*times=*/{}, units_before_root_readers(*model, run.layout));
  return run;
}

}  // namespace

TracedModel traced_model(const TrainConfig& config, const FsdpImplementation& fsdp) {
  const live_bytes::ScopedPeaks peaks;
  const std::shared_ptr<const Dataset> dataset = make_dataset(config);
  // The held-out rows are in memory during the traces, as in a run.
  std::optional<Validation> held_out;
  if (config.data.eval_every > 0) held_out.emplace(config, *dataset);
  const Workload workload = workload_of_run(config, fsdp, dataset);
  try {
    return traced_model(config, fsdp, workload);
  } catch (const NotStarted&) {
    if (config.ranks.mode == Mode::fsdp) throw;
    return {layout_of_one_unit(*workload.build(), config.shards()), std::nullopt};
  }
}

}  // namespace fsdp
