#include <report/progress.h>

#include <cmath>
#include <cstdio>

namespace fsdp {
namespace {

std::string bar(int64_t done, int64_t total) {
  constexpr int64_t kWidth = 24;
  const int64_t filled = done * kWidth / total;
  return std::string(filled, '=') + std::string(kWidth - filled, ' ');
}

}  // namespace

std::string time_left(double seconds) {
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return std::to_string(whole) + " s left";
  const int64_t minutes = (whole + 30) / 60;
  if (minutes < 60) return std::to_string(minutes) + " min left";
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min left";
}

// The first step is not counted: it takes longer than the others.
std::string Progress::left(const Step& step) const {
  constexpr double kSoon = 2;  // [s]
  const double seconds = step.seconds - first_->seconds;
  if (seconds < kSoon || step.done == steps_) return "";
  const auto rest = static_cast<double>(steps_ - step.done);
  return "  " + time_left(seconds / static_cast<double>(step.done - first_->done) * rest);
}

std::string Progress::after(const Step& step, int columns) {
  if (!first_) first_ = step;
  const auto done = static_cast<long long>(step.done), steps = static_cast<long long>(steps_);
  const double megabytes = static_cast<double>(step.live_bytes) / 1e6;
  char text[160];
  if (columns == 0) {
    std::snprintf(text, sizeof text, "step %lld/%lld  loss %.10f  %.0f tokens/s  %.1f MB live\n",
                  done, steps, step.loss, step.tokens_per_s, megabytes);
    return text;
  }
  std::snprintf(text, sizeof text, "%lld/%lld  loss %.6f  %.0f tokens/s  %.1f MB live", done, steps,
                step.loss, step.tokens_per_s, megabytes);
  const auto room = static_cast<size_t>(columns - 1);  // the last column is the cursor's
  const std::string words = text + left(step);
  const std::string whole = '[' + bar(step.done, steps_) + "] " + words;
  return "\r\033[K" + (whole.size() <= room ? whole : words.substr(0, room)) +
         (step.done == steps_ ? "\n" : "");
}

}  // namespace fsdp
