#pragma once

#include <report/line_spool.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// Formats the progress of a run after each step: for a terminal, a bar that replaces the previous
// one and shows the time left as soon as two seconds have passed; otherwise a line.
class Progress {
 public:
  explicit Progress(int64_t steps) : steps_(steps) {}

  struct Step {
    int64_t done;    // steps so far, including this one
    double seconds;  // the current time, since any fixed moment
    double loss, tokens_per_s;
    int64_t live_bytes;
  };
  // Returns the text to print on a terminal with `columns` columns or, if `columns` is 0, to a
  // file. On a terminal, the text fits into one line: if it is too long, the bar is left out, and
  // then the end of the text. It ends with a newline only after the last step.
  std::string after(const Step& step, int columns);

 private:
  std::string left(const Step& step) const;

  int64_t steps_;              // of the whole run
  std::optional<Step> first_;  // the first step in this process
};

// The report of rank 0 on a run: progress on stdout, and the lines of a JSON file, which is written
// when the run ends.
class Telemetry {
 public:
  // `steps`: of the whole run. `json`: the file; empty: none. `lines_only`: print progress as lines
  // also on a terminal, because a launcher can give rank 0 a terminal whose output is stored in a
  // file.
  Telemetry(int64_t steps, std::string json, bool lines_only = false);

  void say(const std::string& line);  // prints `line` at once, on a line of its own
  // Prints the progress after step number `step`, from 0 on, and adds its line to the file.
  void step(int64_t step, double loss, double tokens_per_s, std::optional<double> grad_norm,
            int64_t live_bytes);
  // For a run without steps: prints the loss of the first parameters, and adds its line to the
  // file.
  void evaluated(double loss);

  // Returns the lines of the file so far. Pass them to go_on_after() of the Telemetry that
  // continues the run, whose file then begins with them.
  std::string lines() const { return lines_.text(); }
  void go_on_after(const std::string& lines);
  // Returns the bytes of these lines that are in memory, not in the spool's file.
  int64_t bytes_in_memory() const { return lines_.bytes_in_memory(); }

  // Prints the summary and writes the file. Throws std::runtime_error, which names the file.
  void finish(const nlohmann::ordered_json& final_line, const std::vector<std::string>& summary);

  // Ends a run that failed: writes the lines so far and a last line {"failure": reason}. Numbers
  // that are not finite are null in the file. Throws what finish() throws.
  void fail(const std::string& reason);

 private:
  void end_bar();
  void add(const nlohmann::ordered_json& line);
  void write(const nlohmann::ordered_json& last);

  std::string json_;
  Progress progress_;
  bool lines_only_;
  bool bar_open_{};  // the last line on the terminal is a bar without a newline
  LineSpool lines_;  // of the JSON file; empty if there is no file
};

// A file that gets a line of JSON after each step. It may be a FIFO or /dev/stdout. New lines are
// added after what the file has already. (The options of a run throw if the file is the log of
// another run.)
class RunLog {
 public:
  // Opens the file. Opening a FIFO waits for its reader. Throws std::runtime_error, which names the
  // file.
  explicit RunLog(std::string path);
  ~RunLog();
  // Call it in a run that resumes after `step` steps. Removes a half line at the end of the plain
  // file. If the file has lines of step `step` or later, which the stopped run has left, writes the
  // line {"resumed_after": step}, because these steps follow once more.
  void go_on_after(int64_t step);
  RunLog(const RunLog&) = delete;  // one owner of the open file

  // Writes one line at once. Numbers that are not finite are null. If the write fails, because the
  // disk is full or a FIFO has lost its reader, prints one line on stderr and writes nothing from
  // then on.
  void write(const nlohmann::ordered_json& line);

 private:
  std::string path_;
  int file_;  // -1: closed after a failure
};

// Returns why RunLog could not open `path`: "Permission denied"; "" if nothing prevents it, as far
// as this is known without opening the file.
std::string reason_not_to_log(const std::string& path);

// Returns the number with commas: "1,234,567".
std::string with_commas(int64_t value);

}  // namespace fsdp
