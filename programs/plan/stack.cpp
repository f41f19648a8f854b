#include <meta_init.h>
#include <plan/stack.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <strategies/language_modeling.h>
#include <strategies/run_data.h>
#include <train/run_workload.h>

namespace fsdp {

ShardLayout layout_of(const TrainConfig& config) {
  return shard_layout(config, language_modeling(config, nullptr));
}

ModelTraces traces_of(const TrainConfig& config, const ShardLayout& layout) {
  const FsdpImplementation stack{nullptr, shard_layout, checkpoint_blocks, construct_on_meta};
  return trace_on_meta(config, workload_of_run(config, stack, make_dataset(config)), layout,
                       construct_on_meta);
}

Plan plan_of(const TrainConfig& config, const Machine& machine) {
  const ShardLayout layout = layout_of(config);
  return make_plan(config, layout, traces_of(config, layout), machine);
}

}  // namespace fsdp
