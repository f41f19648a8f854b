#pragma once

#include <config/train_config.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// What rank 0 tells of a run: progress on stdout (a bar on a terminal, else a line a step), and the
// lines of config.json, which appears as a whole when the run has succeeded.
class Telemetry {
 public:
  explicit Telemetry(const TrainConfig& config);

  void begin(const std::string& backend);              // before the model is built
  void built(int64_t parameters, int64_t live_bytes);  // and after
  void step(int64_t step, double loss, double tokens_per_s, std::optional<double> grad_norm,
            int64_t live_bytes);
  void evaluated(double loss);
  void note(const std::string& line);  // a line of the summary
  // Ends the run: prints the summary and writes the file. Throws std::runtime_error naming the
  // file.
  void finish(nlohmann::ordered_json final_line);

 private:
  void progress(int64_t step, double loss, double tokens_per_s, int64_t live_bytes);

  const TrainConfig& config_;
  bool terminal_;
  std::vector<std::string> lines_;  // of the JSON file
  std::vector<std::string> notes_;
};

// "1,234,567"
std::string with_commas(int64_t value);

}  // namespace fsdp
