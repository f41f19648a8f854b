#pragma once

#include <data/dataset.h>
#include <report/telemetry.h>
#include <train/over_ranks.h>
#include <train/trainer.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// One rank's training, from the model to the report.
class TrainingRun {
 public:
  // Builds the model. Both arguments by reference must outlive this object.
  TrainingRun(const TrainConfig& config, const FsdpImplementation& fsdp,
              const RankContext& context);

  // Trains and reports. Throws std::runtime_error, on every rank in the same step, when a loss or
  // the norm of the gradients is not finite, unless config.allow_nan.
  void operator()();

 private:
  bool leads() const { return comm_->rank() == 0; }
  Batch batch(int64_t step) const { return dataset_->batch(step, config_.batch, config_.seq); }
  void evaluate();
  void train(int64_t step);
  std::optional<double> update();
  void require_finite(const std::string& when, const MeanOverRanks& loss,
                      std::optional<double> norm);
  std::optional<std::string> loss_beside_entropy() const;

  const TrainConfig& config_;
  std::shared_ptr<Communicator> comm_;
  std::shared_ptr<Dataset> dataset_;
  Telemetry telemetry_;
  std::unique_ptr<Strategy> strategy_;
  std::vector<double> losses_;
  std::vector<Call> last_log_;  // the collectives of the last step
};

}  // namespace fsdp
