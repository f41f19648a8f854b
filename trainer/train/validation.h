#pragma once

#include <config/train_config.h>
#include <data/dataset.h>
#include <strategies/strategy.h>

#include <string>

namespace fsdp {

// How a model does on the rows that a dataset holds out.
struct HeldOutResult {
  double loss{};      // mean cross entropy of the tokens that are asked for
  double accuracy{};  // how many of them the model gives the highest logit, from 0 to 1
};

// "loss 0.0123, accuracy 99.48 %"
std::string to_string(const HeldOutResult& result);

// The rows that a run evaluates: at most four batches. They are cut into parts as a batch is, so
// the result has the same bits in every arrangement in which the losses of training have the same.
class Validation {
 public:
  // Throws what dataset.held_out() throws.
  Validation(const TrainConfig& config, const Dataset& dataset);

  // All ranks of `comm` call it together, between steps. It changes nothing that training reads.
  HeldOutResult evaluate(Strategy& strategy, Communicator& comm) const;

 private:
  at::Tensor sums_of_microbatch(Module& model, int microbatch, int microbatches) const;

  Batch rows_;  // with rows that ask for nothing at the end, so that every part has as many
  int64_t rows_at_a_time_;  // of a part: no more than in training
  double asked_;            // tokens
  int microbatches_;
  c10::DeviceType device_;
};

}  // namespace fsdp
