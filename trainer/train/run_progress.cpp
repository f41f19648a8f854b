#include <train/run_progress.h>
#include <train/run_report.h>

#include <cmath>

namespace fsdp {

void RunProgress::add_loss(double loss) {
  losses.push_back(loss);
  if (std::ssize(losses) > kReportedLosses) losses.erase(losses.begin());
}

nlohmann::ordered_json RunProgress::to_json() const {
  return {{"sum_before", sum_before},
          {"log_line", log_line},
          {"seconds", seconds},
          {"skipped_steps", skipped_steps},
          {"losses", losses}};
}

RunProgress RunProgress::from_json(const nlohmann::ordered_json& json) {
  RunProgress progress;
  progress.sum_before = json["sum_before"];
  progress.log_line = json["log_line"];
  progress.seconds = json["seconds"];
  progress.skipped_steps = json["skipped_steps"];
  for (const auto& loss : json["losses"])
    progress.add_loss(loss.is_null() ? NAN : loss.get<double>());
  return progress;
}

}  // namespace fsdp
