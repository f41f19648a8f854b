#include <base/standard_output.h>
#include <base/whole_file.h>
#include <report/telemetry.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace fsdp {
namespace {

// Of the one that stdout is, whose window may change at any time; 0 if it is none.
int columns_of_terminal() {
  if (isatty(STDOUT_FILENO) != 1) return 0;
  constexpr int kUsual = 80;
  winsize window{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  return known ? window.ws_col : kUsual;
}

}  // namespace

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > (value < 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

Telemetry::Telemetry(int64_t steps, std::string json) : json_(std::move(json)), progress_(steps) {}

void Telemetry::end_bar() {
  if (std::exchange(bar_open_, false)) std::printf("\n");
}

void Telemetry::say(const std::string& line) {
  end_bar();
  std::printf("%s\n", line.c_str());
  flush_output();
}

void Telemetry::step(int64_t step, double loss, double tokens_per_s,
                     std::optional<double> grad_norm, int64_t live_bytes) {
  nlohmann::ordered_json line{{"step", step}, {"loss", loss}, {"tokens_per_s", tokens_per_s}};
  line["grad_norm"] = grad_norm ? nlohmann::ordered_json(*grad_norm) : nlohmann::ordered_json();
  lines_.push_back(line.dump());
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  const std::string text = progress_.after({step + 1, now.count(), loss, tokens_per_s, live_bytes},
                                           columns_of_terminal());
  std::printf("%s", text.c_str());
  flush_output();
  bar_open_ = text.back() != '\n';
}

void Telemetry::evaluated(double loss) {
  lines_.push_back(nlohmann::ordered_json{{"step", 0}, {"eval", true}, {"loss", loss}}.dump());
  std::printf("loss %.10f before training\n", loss);
}

void Telemetry::finish(const nlohmann::ordered_json& final_line,
                       const std::vector<std::string>& summary) {
  for (const std::string& line : summary)
    say(line);
  lines_.push_back(final_line.dump());
  write();
  lines_.pop_back();
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
