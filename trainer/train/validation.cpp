#include <memory/live_bytes.h>
#include <optim/shard_layout.h>
#include <train/rank_metrics.h>
#include <train/validation.h>

#include <algorithm>
#include <cstdio>

namespace fsdp {
namespace {

constexpr int64_t kBatches = 4;

// Returns `batch` with rows of kIgnoreIndex appended until `parts` divides the number of rows.
Batch filled_up(const Batch& batch, int64_t parts) {
  const int64_t rows = batch.inputs.size(0), more = (parts - rows % parts) % parts;
  const std::vector<int64_t> below{0, 0, 0, more};
  return {at::constant_pad_nd(batch.inputs, below, 0),
          at::constant_pad_nd(batch.targets, below, kIgnoreIndex)};
}

}  // namespace

std::string to_string(const HeldOutResult& result) {
  char text[80];
  std::snprintf(text, sizeof text, "loss %.6f, accuracy %.2f %%", result.loss,
                100 * result.accuracy);
  return text;
}

Validation::Validation(const TrainConfig& config, const Dataset& dataset)
    : microbatches_(config.batch_partition().microbatches()), device_(config.ranks.comm.device) {
  rows_ = filled_up(dataset.held_out(kBatches * config.training.batch, config.training.seq),
                    microbatches_);
  rows_at_a_time_ = std::max<int64_t>(1, config.training.batch / microbatches_);
  asked_ = (rows_.targets != kIgnoreIndex).sum().item<double>();
}

// Returns [2] fp64: the sum of the cross entropies of the microbatch's tokens, and the number of
// tokens that the model predicts correctly. Targets that are kIgnoreIndex do not count.
at::Tensor Validation::sums_of_microbatch(Module& model, int microbatch, int microbatches) const {
  const Batch own = rows_.part(microbatch, microbatches);
  const int64_t rows = own.inputs.size(0);
  at::Tensor sums = at::zeros({2}, at::TensorOptions(at::kDouble).device(device_));
  for (int64_t begin = 0; begin < rows; begin += rows_at_a_time_) {
    const int64_t end = std::min(begin + rows_at_a_time_, rows);
    const Batch some =
        Batch{own.inputs.slice(0, begin, end), own.targets.slice(0, begin, end)}.to(device_);
    const at::Tensor logits = model(some.inputs).flatten(0, 1).to(at::kFloat);
    const at::Tensor targets = some.targets.flatten();
    const at::Tensor loss =
        at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, kIgnoreIndex);
    const at::Tensor right = (logits.argmax(1) == targets).sum();
    sums += at::stack({loss.to(at::kDouble), right.to(at::kDouble)});
  }
  return sums;
}

HeldOutResult Validation::evaluate(Strategy& strategy, Communicator& comm) const {
  // Memory that an evaluation allocates does not count as memory of a step.
  live_bytes::enter(Phase::init);
  const at::Tensor sums =
      strategy.evaluate([this](Module& model, int microbatch, int microbatches) {
        return sums_of_microbatch(model, microbatch, microbatches);
      });
  const at::Tensor sum = MeanOverRanks(comm, sums, microbatches_ / comm.world_size()).sum();
  return {sum[0].item<double>() / asked_, sum[1].item<double>() / asked_};
}

}  // namespace fsdp
