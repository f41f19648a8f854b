#include <nn/models.h>
#include <strategies/build_model.h>
#include <strategies/language_modeling.h>
#include <strategies/model_device.h>

namespace fsdp {
namespace {

// The batch of the last step for which the loss was called.
struct BatchOfStep {
  int64_t step{-1};
  Batch batch;
};

}  // namespace

Workload language_modeling(const TrainConfig& config, std::shared_ptr<const Dataset> dataset) {
  const auto kept = std::make_shared<BatchOfStep>();
  const auto loss = [=, rows = config.training.batch, seq = config.training.seq](
                        Module& model, int microbatch, int microbatches, int64_t step) {
    if (kept->step != step) {
      kept->batch = {};  // freed before the next batch takes memory
      *kept = {step, dataset->batch(step, rows, seq)};
    }
    const Batch own = kept->batch.part(microbatch, microbatches);
    return language_model_loss(model, to_device_of(model, own.inputs),
                               to_device_of(model, own.targets));
  };
  return {[config] { return build_model(config); }, loss};
}

}  // namespace fsdp
