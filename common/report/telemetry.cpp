#include <base/whole_file.h>
#include <report/telemetry.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace fsdp {
namespace {

std::string bar(int64_t done, int64_t total) {
  constexpr int64_t kWidth = 24;
  const int64_t filled = done * kWidth / total;
  return std::string(filled, '=') + std::string(kWidth - filled, ' ');
}

}  // namespace

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > (value < 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

Telemetry::Telemetry(int64_t steps, std::string json)
    : steps_(steps), json_(std::move(json)), terminal_(isatty(STDOUT_FILENO) == 1) {}

void Telemetry::end_bar() {
  if (std::exchange(bar_open_, false)) std::printf("\n");
}

void Telemetry::say(const std::string& line) {
  end_bar();
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void Telemetry::step(int64_t step, double loss, double tokens_per_s,
                     std::optional<double> grad_norm, int64_t live_bytes) {
  nlohmann::ordered_json line{{"step", step}, {"loss", loss}, {"tokens_per_s", tokens_per_s}};
  line["grad_norm"] = grad_norm ? nlohmann::ordered_json(*grad_norm) : nullptr;
  lines_.push_back(line.dump());
  progress(step + 1, loss, tokens_per_s, live_bytes);
}

void Telemetry::evaluated(double loss) {
  lines_.push_back(nlohmann::ordered_json{{"step", 0}, {"eval", true}, {"loss", loss}}.dump());
  std::printf("loss %.10f before training\n", loss);
}

void Telemetry::progress(int64_t done, double loss, double tokens_per_s, int64_t live_bytes) {
  const auto count = static_cast<long long>(done);
  const auto total = static_cast<long long>(steps_);
  if (terminal_) {
    std::printf("\r[%s] %lld/%lld  loss %.6f  %.0f tokens/s  %.1f MB live ",
                bar(done, steps_).c_str(), count, total, loss, tokens_per_s,
                static_cast<double>(live_bytes) / 1e6);
    bar_open_ = done != steps_;
    if (!bar_open_) std::printf("\n");
  } else {
    std::printf("step %lld/%lld  loss %.10f  %.0f tokens/s  %.1f MB live\n", count, total, loss,
                tokens_per_s, static_cast<double>(live_bytes) / 1e6);
  }
  std::fflush(stdout);
}

void Telemetry::finish(const nlohmann::ordered_json& final_line,
                       const std::vector<std::string>& summary) {
  for (const std::string& line : summary)
    say(line);
  lines_.push_back(final_line.dump());
  write();
}

void Telemetry::fail(const std::string& reason) {
  end_bar();
  lines_.push_back(nlohmann::ordered_json{{"failure", reason}}.dump());
  write();
}

void Telemetry::write() {
  if (json_.empty()) return;
  std::string content;
  for (const std::string& line : lines_)
    content += line + '\n';
  write_whole_file(json_, content);
}

}  // namespace fsdp
