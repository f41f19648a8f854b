#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp {

// The state of a run on a rank, except its tensors.
struct RunProgress {
  double sum_before{};              // fp64 sum of the parameters before the first step
  double seconds{};                 // [s] that the training steps have taken so far
  int64_t skipped_steps{};          // number of steps that the loss scaler skipped
  std::vector<double> losses;       // losses of the last steps, at most kReportedLosses of them
  nlohmann::ordered_json log_line;  // line of the last step, in the format of --log

  void add_loss(double loss);

  nlohmann::ordered_json to_json() const;
  // Reads the JSON that to_json() returned. JSON has neither NaN nor infinity, so a loss that is
  // null is read as NaN.
  static RunProgress from_json(const nlohmann::ordered_json& json);
};

}  // namespace fsdp
