#pragma once

#include <report/line_spool.h>
#include <report/reported_steps.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// Formats the progress of a run after each step. On a terminal, the progress is a bar that replaces
// the bar of the previous step and, from two seconds after the first step on, shows the time left.
// In a file, it is a line for each step that ReportedSteps selects.
class Progress {
 public:
  explicit Progress(ReportedSteps steps) : steps_(steps) {}

  struct Step {
    int64_t done;    // number of steps so far, including this one
    double seconds;  // [s] the current time, since any fixed moment
    double loss, tokens_per_s;
    int64_t live_bytes;
  };
  // Returns the text to print after a step. `columns`: the width of the terminal; 0: stdout is a
  // file.
  // - To a file: a line, or "" if ReportedSteps does not select the step.
  // - To a terminal: a text that fits into one line. If it is too long, the bar is left out and, if
  //   it is still too long, the end of the text is cut off. The text ends with a newline only after
  //   the last step.
  std::string after(const Step& step, int columns);

 private:
  std::string left(const Step& step) const;

  ReportedSteps steps_;
  std::optional<Step> first_;  // the first step that after() was called with
};

// The report of rank 0 on a run: prints the progress on stdout and collects the lines of a JSON
// file, which is written when the run ends.
class Telemetry {
 public:
  // `json`: the path of the JSON file; empty: no file is written. `lines_only`: print progress as
  // lines also on a terminal, because a launcher can give rank 0 a terminal whose output is stored
  // in a file.
  Telemetry(ReportedSteps steps, std::string json, bool lines_only = false);

  void say(const std::string& line);  // prints `line` at once, on a line of its own
  // Prints the progress after step number `step`, counted from 0, if ReportedSteps selects the step
  // or stdout is a terminal. Stores a line for the JSON file, which has a line for every step.
  void step(int64_t step, double loss, double tokens_per_s, std::optional<double> grad_norm,
            int64_t live_bytes);
  // For a run without steps: prints the loss of the parameters with which the run begins, and
  // stores a line for the JSON file.
  void evaluated(double loss);

  // Returns the lines that this object has stored so far for the JSON file. If another Telemetry
  // continues the run, pass the lines to its go_on_after(), so that its JSON file begins with them.
  std::string lines() const { return lines_.text(); }
  void go_on_after(const std::string& lines);
  // Returns how many bytes of the stored lines are in memory; the other bytes are in a temporary
  // file.
  int64_t bytes_in_memory() const { return lines_.bytes_in_memory(); }

  // Prints the lines of `summary`, and writes the JSON file: the stored lines, then `final_line`.
  // Throws std::runtime_error, which names the file, if it can't be written.
  void finish(const nlohmann::ordered_json& final_line, const std::vector<std::string>& summary);

  // Ends the report of a run that failed: writes the stored lines and a last line {"failure":
  // reason} to the JSON file, in which numbers that are not finite are null. Throws what finish()
  // throws.
  void fail(const std::string& reason);

 private:
  void end_bar();
  void add(const nlohmann::ordered_json& line);
  void write(const nlohmann::ordered_json& last);

  std::string json_;
  Progress progress_;
  bool lines_only_;
  bool bar_open_{};  // whether the terminal's last line is a progress bar without a newline
  LineSpool lines_;  // lines of the JSON file; empty if json_ is empty
};

// The file of --log, which gets a line of JSON while the run trains. It may be a FIFO or
// /dev/stdout. If the file has lines already, RunLog keeps them and adds its lines after them. (If
// these are the lines of another run, the check of the options throws before a RunLog is made.)
class RunLog {
 public:
  // Opens the file `path`. If it is a FIFO, waits until a process opens it to read. Throws
  // std::runtime_error, which names the file, if it can't be opened.
  explicit RunLog(std::string path);
  ~RunLog();
  // Call it before the first write(). `step`: how many steps were done before this run; 0
  // unless this run resumes. Removes a half line at the end of a plain file. If a stopped run has
  // left lines of step `step` (counted from 0) or of later steps, writes the line {"resumed_after":
  // step}, because this run will log these steps again.
  void go_on_after(int64_t step);
  RunLog(const RunLog&) = delete;  // not copyable: an open file has one owner

  // Writes `line` at once, with its newline. Numbers that are not finite become null. If the write
  // fails, because the disk is full or a FIFO has lost its reader, prints one line on stderr, and
  // all later calls write nothing.
  void write(const nlohmann::ordered_json& line);

 private:
  std::string path_;
  int file_;  // descriptor of the file; -1: closed after a write failed
};

// Returns why RunLog could not open the file `path`, for example "Permission denied". Returns "" if
// nothing prevents it, as far as this can be found out without opening the file.
std::string reason_not_to_log(const std::string& path);

// Returns the number with a comma between groups of three digits: "1,234,567".
std::string with_commas(int64_t value);

}  // namespace fsdp
