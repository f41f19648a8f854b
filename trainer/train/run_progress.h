#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp {

// The state of a run on a rank, except its tensors.
struct RunProgress {
  double sum_before{};              // of the parameters before the first step, added in fp64
  double seconds{};                 // of training so far
  int64_t skipped_steps{};          // skipped by the loss scaler
  std::vector<double> losses;       // the last kReportedLosses; see add_loss()
  nlohmann::ordered_json log_line;  // of the last step, for --log

  void add_loss(double loss);

  nlohmann::ordered_json to_json() const;
  // Reads what to_json() has written. JSON has neither NaN nor infinity: a loss that is null
  // becomes NaN.
  static RunProgress from_json(const nlohmann::ordered_json& json);
};

}  // namespace fsdp
