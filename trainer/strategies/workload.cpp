#include <nn/models.h>
#include <strategies/build_model.h>
#include <strategies/workload.h>

#include <utility>

namespace fsdp {
namespace {

// The batch of the step that was asked for last.
struct BatchOfStep {
  int64_t step{-1};
  Batch batch;
};

}  // namespace

Workload language_modeling(const TrainConfig& config, std::shared_ptr<const Dataset> dataset) {
  const auto kept = std::make_shared<BatchOfStep>();
  const auto loss = [=, rows = config.batch, seq = config.seq, device = config.comm.device](
                        Module& model, int part, int parts, int64_t step) {
    if (kept->step != step) {
      kept->batch = {};  // before the next one takes memory
      *kept = {step, dataset->batch(step, rows, seq)};
    }
    const Batch batch = kept->batch.part(part, parts).to(device);
    return language_model_loss(model, batch.inputs, batch.targets);
  };
  return {[config] { return build_model(config); }, loss};
}

}  // namespace fsdp
