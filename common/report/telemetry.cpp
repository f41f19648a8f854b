#include <base/whole_file.h>
#include <report/telemetry.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

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

Telemetry::Telemetry(const TrainConfig& config)
    : config_(config), terminal_(isatty(STDOUT_FILENO) == 1) {}

void Telemetry::begin(const std::string& backend) {
  std::printf("%s of %s, %d rank%s%s%s, %s, batch %lld x %lld tokens, %lld step%s\n",
              config_.mode.c_str(), config_.model.c_str(), config_.world,
              config_.world == 1 ? "" : "s",
              config_.mode == "single" ? " played in turn" : (" over " + backend).c_str(),
              config_.on_cuda() ? " on CUDA" : "", config_.published ? "published recipe" : "text",
              static_cast<long long>(config_.batch), static_cast<long long>(config_.seq),
              static_cast<long long>(config_.steps), config_.steps == 1 ? "" : "s");
  std::fflush(stdout);
}

void Telemetry::built(int64_t parameters, int64_t live_bytes) {
  std::printf("%s parameters, %.1f MB live on each rank\n", with_commas(parameters).c_str(),
              static_cast<double>(live_bytes) / 1e6);
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
  const auto total = static_cast<long long>(config_.steps);
  if (terminal_) {
    std::printf("\r[%s] %lld/%lld  loss %.6f  %.0f tokens/s  %.1f MB live ",
                bar(done, config_.steps).c_str(), count, total, loss, tokens_per_s,
                static_cast<double>(live_bytes) / 1e6);
    if (done == config_.steps) std::printf("\n");
  } else {
    std::printf("step %lld/%lld  loss %.10f  %.0f tokens/s  %.1f MB live\n", count, total, loss,
                tokens_per_s, static_cast<double>(live_bytes) / 1e6);
  }
  std::fflush(stdout);
}

void Telemetry::note(const std::string& line) {
  notes_.push_back(line);
}

void Telemetry::finish(nlohmann::ordered_json final_line) {
  for (const std::string& line : notes_)
    std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  if (config_.json.empty()) return;
  lines_.push_back(final_line.dump());
  std::string content;
  for (const std::string& line : lines_)
    content += line + '\n';
  try {
    write_whole_file(config_.json, content);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string("--json ") + error.what());
  }
}

}  // namespace fsdp
