#pragma once

#include <config/train_config.h>
#include <data/dataset.h>
#include <strategies/strategy.h>

#include <string>

namespace fsdp {

// The loss and accuracy of a model on the rows that a dataset holds out.
struct HeldOutResult {
  double loss{};      // mean cross entropy of the tokens that count, see kIgnoreIndex
  double accuracy{};  // fraction of these tokens whose logit is the highest
};

// Returns "loss 0.012300, accuracy 99.48 %".
std::string to_string(const HeldOutResult& result);

// The held-out rows that a run evaluates: at most four batches. They are cut into microbatches as a
// batch is. So runs that divide the batch in different ways, but have equal bits in the losses of
// training, also have equal bits in these results.
class Validation {
 public:
  // Throws what dataset.held_out() throws.
  Validation(const TrainConfig& config, const Dataset& dataset);

  // Collective over `comm`; call it between steps. Changes nothing that training reads.
  HeldOutResult evaluate(Strategy& strategy, Communicator& comm) const;

 private:
  at::Tensor sums_of_microbatch(Module& model, int microbatch, int microbatches) const;

  Batch rows_;  // padded with rows of kIgnoreIndex, so that all microbatches have equally many rows
  int64_t rows_at_a_time_;  // rows of a microbatch in one forward: no more than in training
  double asked_;            // number of tokens that count
  int microbatches_;
  c10::DeviceType device_;
};

}  // namespace fsdp
