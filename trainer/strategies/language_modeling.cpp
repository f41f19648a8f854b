#include <nn/models.h>
#include <nn/random_scope.h>
#include <strategies/build_model.h>
#include <strategies/language_modeling.h>
#include <strategies/model_device.h>

#include <optional>

namespace fsdp {
namespace {

// The batch of the step for which the workload's loss was called last.
struct BatchOfStep {
  int64_t step{-1};
  Batch batch;
};

}  // namespace

Workload language_modeling(const TrainConfig& config, std::shared_ptr<const Dataset> dataset) {
  const auto kept = std::make_shared<BatchOfStep>();
  const ModelShape shape = model_shape(config.model.name);
  const auto* gpt2 = std::get_if<GPT2Options>(&shape);
  const bool draws = gpt2 != nullptr && gpt2->dropout > 0;
  const auto loss = [=, rows = config.training.batch, seq = config.training.seq,
                     seed = config.training.seed](Module& model, int microbatch, int microbatches,
                                                  int64_t step) {
    if (kept->step != step) {
      kept->batch = {};  // frees the old batch before dataset->batch() takes memory
      *kept = {step, dataset->batch(step, rows, seq)};
    }
    const Batch own = kept->batch.part(microbatch, microbatches);
    std::optional<RandomScope> random;
    if (draws && model.is_training())
      random.emplace(model.parameters().front().device(), seed, step, microbatch);
    return language_model_loss(model, to_device_of(model, own.inputs),
                               to_device_of(model, own.targets));
  };
  return {[config] { return build_model(config); }, loss};
}

}  // namespace fsdp
