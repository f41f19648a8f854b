#pragma once

#include <report/line_spool.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// What a run shows after each step: on a terminal a bar that is drawn over the one before, with the
// time left as soon as two seconds have passed; else a line.
class Progress {
 public:
  explicit Progress(int64_t steps) : steps_(steps) {}

  struct Step {
    int64_t done;    // steps, this one counted
    double seconds;  // the time now, since any moment
    double loss, tokens_per_s;
    int64_t live_bytes;
  };
  // What to print on a terminal of so many columns, or, if that is 0, into a file. On a terminal it
  // fits into one line: what has no room is left out, first the bar, then the end. It ends with a
  // newline after the last step only.
  std::string after(const Step& step, int columns);

 private:
  std::string left(const Step& step) const;

  int64_t steps_;              // of the whole run
  std::optional<Step> first_;  // the first one of this run
};

// What rank 0 reports of a run: progress on stdout, and the lines of a JSON file, which is written
// as a whole when the run ends.
class Telemetry {
 public:
  // `steps`: of the whole run. `json`: the file; empty: none. `lines_only`: progress is a line for
  // each step also on a terminal. A launcher may give rank 0 a terminal that leads into a file.
  Telemetry(int64_t steps, std::string json, bool lines_only = false);

  void say(const std::string& line);  // prints it at once, on a line of its own
  void step(int64_t step, double loss, double tokens_per_s, std::optional<double> grad_norm,
            int64_t live_bytes);
  void evaluated(double loss);

  // The lines of the file so far, with which another object's begin.
  std::string lines() const { return lines_.text(); }
  void go_on_after(const std::string& lines);
  int64_t bytes_in_memory() const { return lines_.bytes_in_memory(); }  // of these lines

  // Prints the summary and writes the file. Throws std::runtime_error naming the file.
  void finish(const nlohmann::ordered_json& final_line, const std::vector<std::string>& summary);

  // Ends a run that failed: writes the steps so far and a last line {"failure": reason}. Values
  // that are not finite are null in the file. Throws as finish() does.
  void fail(const std::string& reason);

 private:
  void end_bar();
  void add(const nlohmann::ordered_json& line);
  void write(const nlohmann::ordered_json& last);

  std::string json_;
  Progress progress_;
  bool lines_only_;
  bool bar_open_{};  // the line on the terminal is a bar that is not at its end
  LineSpool lines_;  // of the JSON file; none if there is no file
};

// A file that gets lines of JSON as things happen. It may be a FIFO or /dev/stdout. What a file
// holds already stays: new lines come after it. (reason_not_to_log() and the options of a run
// refuse the log of another run.)
class RunLog {
 public:
  // Opens the file; a FIFO, when somebody reads it. Throws std::runtime_error naming the file.
  explicit RunLog(std::string path);
  ~RunLog();
  // If the plain file has lines of step `step` or a later one, which a run has left that was
  // stopped, writes a line {"resumed_after": step}: these steps come again after it.
  void go_on_after(int64_t step);
  RunLog(const RunLog&) = delete;  // it owns the open file

  // Writes one line at once. Values that are not finite are null. If that fails, because the disk
  // is full or the reader has gone, says so once on stderr, and writes nothing from then on.
  void write(const nlohmann::ordered_json& line);

 private:
  std::string path_;
  int file_;  // -1: closed after a failure
};

// Why `path` could not be opened so: "Permission denied"; empty if it can be, as far as that is
// known without opening it.
std::string reason_not_to_log(const std::string& path);

// "1,234,567"
std::string with_commas(int64_t value);

}  // namespace fsdp
