#pragma once

#include <config/train_config.h>
#include <data/dataset.h>
#include <strategies/strategy.h>

#include <string>

namespace fsdp {

// The loss and the accuracy of a model on held-out rows of a dataset.
struct HeldOutResult {
  double loss{};  // mean cross entropy of the tokens whose target is not kIgnoreIndex
  // Of the tokens whose target is not kIgnoreIndex: the fraction for which the target has the
  // highest logit.
  double accuracy{};
};

// Returns the result as text: "loss 0.012300, accuracy 99.48 %".
std::string to_string(const HeldOutResult& result);

// The held-out rows on which a run is evaluated: at most four batches. They are cut into
// microbatches as a training batch is. So if two runs divide the batch among ranks in different
// ways, but the bits of their training losses are equal, the bits of their evaluations are equal
// too.
class Validation {
 public:
  // Reads the held-out rows of `dataset`. Throws what dataset.held_out() throws.
  Validation(const TrainConfig& config, const Dataset& dataset);

  // Collective over `comm`; call it between steps. Evaluates the strategy's model on the held-out
  // rows. The training is the same whether or not it is called.
  HeldOutResult evaluate(Strategy& strategy, Communicator& comm) const;

 private:
  at::Tensor sums_of_microbatch(Module& model, int microbatch, int microbatches) const;

  // The held-out rows, and rows of kIgnoreIndex so that all microbatches are equally large.
  Batch rows_;
  int64_t rows_at_a_time_;  // rows in one forward, at most those of a training microbatch
  double asked_;            // number of targets that are not kIgnoreIndex
  int microbatches_;
  c10::DeviceType device_;
};

}  // namespace fsdp
