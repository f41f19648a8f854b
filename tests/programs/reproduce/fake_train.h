#pragma once

#include <reproduce/train_runs.h>

#include <functional>
#include <map>
#include <string>
#include <utility>

namespace fsdp {

// Takes the place of the train program. For every mode it returns the numbers that the tables
// expect, except for what `spoil` changes.
class FakeTrain {
 public:
  using Spoil = std::function<void(const TrainOptions&, TrainResult&)>;
  explicit FakeTrain(Spoil spoil = nullptr) : spoil_(std::move(spoil)) {}

  const TrainResult& operator()(const TrainOptions& options) {
    TrainResult made = result(options);
    if (spoil_) spoil_(options, made);
    return results_.try_emplace(options, std::move(made)).first->second;
  }

  const std::map<TrainOptions, TrainResult>& results() const { return results_; }

 private:
  static TrainResult result(const TrainOptions& options) {
    TrainResult result;
    for (int step = 0; step < 5; ++step) {
      const double loss = step == 0 ? 7.1115727425 : 7.0903296471;
      result.steps.push_back({{"step", step}, {"loss", loss}, {"grad_norm", nullptr}});
    }
    result.last = {{"final", true},
                   {"param_sum", 2286.522560},
                   {"param_sum_change", 0.369358},
                   {"param_sha256", "abcdef0123456789-" + value_of(options, "--world")},
                   {"live_bytes_mismatches", 0},
                   {"comm_bytes", {{"all_gather", 24}}},
                   {"comm_bytes_predicted", {{"all_gather", 24}}}};
    return result;
  }

  Spoil spoil_;
  std::map<TrainOptions, TrainResult> results_;
};

}  // namespace fsdp
