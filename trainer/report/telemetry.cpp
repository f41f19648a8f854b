#include <base/standard_output.h>
#include <base/whole_file.h>
#include <base/write_all.h>
#include <fcntl.h>
#include <report/log_file.h>
#include <report/telemetry.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Returns the number of columns of the terminal on stdout, which may change at any time, or 80 if
// it is unknown; 0 if stdout is not a terminal.
int columns_of_terminal() {
  if (isatty(STDOUT_FILENO) != 1) return 0;
  constexpr int kUsual = 80;
  winsize window{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  return known ? window.ws_col : kUsual;
}

std::string bar(int64_t done, int64_t total) {
  constexpr int64_t kWidth = 24;
  const int64_t filled = done * kWidth / total;
  return std::string(filled, '=') + std::string(kWidth - filled, ' ');
}

// Returns the time as text: "42 s left", "3 min left" or "1 h 5 min left".
std::string time_left(double seconds) {
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return std::to_string(whole) + " s left";
  const int64_t minutes = (whole + 30) / 60;
  if (minutes < 60) return std::to_string(minutes) + " min left";
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min left";
}

}  // namespace

// Returns the estimated time until the run ends, as text; "" in the first two seconds after this
// process's first step, and after the run's last step. The estimate leaves out the first step,
// which takes longer than the others.
std::string Progress::left(const Step& step) const {
  // The number of seconds after this process's first step in which left() shows no estimate.
  constexpr double kSoon = 2;
  const double seconds = step.seconds - first_->seconds;
  if (seconds < kSoon || step.done == steps_.all) return "";
  const auto rest = static_cast<double>(steps_.all - step.done);
  return "  " + time_left(seconds / static_cast<double>(step.done - first_->done) * rest);
}

std::string Progress::after(const Step& step, int columns) {
  if (!first_) first_ = step;
  const auto done = static_cast<long long>(step.done), steps = static_cast<long long>(steps_.all);
  const double megabytes = static_cast<double>(step.live_bytes) / 1e6;
  char text[160];
  if (columns == 0) {
    if (!steps_.have(step.done)) return "";
    std::snprintf(text, sizeof text, "step %lld/%lld  loss %.10f  %.0f tokens/s  %.1f MB live\n",
                  done, steps, step.loss, step.tokens_per_s, megabytes);
    return text;
  }
  std::snprintf(text, sizeof text, "%lld/%lld  loss %.6f  %.0f tokens/s  %.1f MB live", done, steps,
                step.loss, step.tokens_per_s, megabytes);
  // The last column of the terminal stays free for the cursor.
  const auto room = static_cast<size_t>(columns - 1);
  const std::string words = text + left(step);
  const std::string whole = '[' + bar(step.done, steps_.all) + "] " + words;
  return "\r\033[K" + (whole.size() <= room ? whole : words.substr(0, room)) +
         (step.done == steps_.all ? "\n" : "");
}

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > (value < 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

Telemetry::Telemetry(ReportedSteps steps, std::string json, bool lines_only)
    : json_(std::move(json)), progress_(steps), lines_only_(lines_only) {}

void Telemetry::add(const nlohmann::ordered_json& line) {
  if (!json_.empty()) lines_.add(line.dump());
}

void Telemetry::go_on_after(const std::string& lines) {
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);)
    lines_.add(line);
}

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
  add(line);
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  const std::string text = progress_.after({step + 1, now.count(), loss, tokens_per_s, live_bytes},
                                           lines_only_ ? 0 : columns_of_terminal());
  if (text.empty()) return;
  std::printf("%s", text.c_str());
  flush_output();
  bar_open_ = text.back() != '\n';
}

void Telemetry::evaluated(double loss) {
  add({{"step", 0}, {"eval", true}, {"loss", loss}});
  std::printf("loss %.10f before training\n", loss);
}

void Telemetry::finish(const nlohmann::ordered_json& final_line,
                       const std::vector<std::string>& summary) {
  for (const std::string& line : summary)
    say(line);
  write(final_line);
}

void Telemetry::fail(const std::string& reason) {
  end_bar();
  write({{"failure", reason}});
}

void Telemetry::write(const nlohmann::ordered_json& last) {
  if (json_.empty()) return;
  write_whole_file(json_, [&](const WritePiece& write_piece) {
    lines_.read(write_piece);
    write_piece(last.dump() + '\n');
  });
}

RunLog::RunLog(std::string path)
    : path_(std::move(path)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw std::runtime_error("--log " + path_ + ": " + std::strerror(errno));
}

RunLog::~RunLog() {
  if (file_ >= 0) close(file_);
}

void RunLog::go_on_after(int64_t step) {
  if (!holds_something(path_)) return;
  remove_half_a_line(path_);
  if (end_of_log(path_).last_step.value_or(-1) >= step) write({{"resumed_after", step}});
}

void RunLog::write(const nlohmann::ordered_json& line) {
  if (file_ < 0) return;
  struct stat before {};
  fstat(file_, &before);
  const int error = write_all(file_, line.dump() + '\n');
  if (error == 0) return;
  std::fprintf(stderr, "--log %s: %s; training continues without it\n", path_.c_str(),
               std::strerror(error));
  // Removes the part of the line that the failed write has left in the file, if it is a plain file.
  if (S_ISREG(before.st_mode) && ftruncate(file_, before.st_size) != 0) errno = 0;
  close(std::exchange(file_, -1));
}

std::string reason_not_to_log(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return reason_not_to_write(path);
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) return std::strerror(EISDIR);
  return access(path.c_str(), W_OK) == 0 ? "" : std::strerror(errno);
}

}  // namespace fsdp
