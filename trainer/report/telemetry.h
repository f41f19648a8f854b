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

// Formats the progress of a run after each step: for a terminal, a bar that replaces the previous
// one and shows the time left as soon as two seconds have passed; otherwise a line, if the step has
// one.
class Progress {
 public:
  explicit Progress(ReportedSteps steps) : steps_(steps) {}

  struct Step {
    int64_t done;    // steps so far, including this one
    double seconds;  // the current time, since any fixed moment
    double loss, tokens_per_s;
    int64_t live_bytes;
  };
  // Returns the text to print on a terminal with `columns` columns or, if `columns` is 0, to a
  // file; "" to a file if the step has no line. On a terminal, the text fits into one line: if it
  // is too long, the bar is left out, and then the end of the text. On a terminal, it ends with a
  // newline only after the last step.
  std::string after(const Step& step, int columns);

 private:
  std::string left(const Step& step) const;

  ReportedSteps steps_;
  std::optional<Step> first_;  // the first step in this process
};

// The report of rank 0 on a run: progress on stdout, and the lines of a JSON file, which is written
// when the run ends.
class Telemetry {
 public:
  // `json`: the file; empty: none. `lines_only`: print progress as lines also on a terminal,
  // because a launcher can give rank 0 a terminal whose output is stored in a file.
  Telemetry(ReportedSteps steps, std::string json, bool lines_only = false);

  void say(const std::string& line);  // prints `line` at once, on a line of its own
  // Prints the progress after step number `step`, from 0 on, and stores its line for the file,
  // which has a line for every step.
  void step(int64_t step, double loss, double tokens_per_s, std::optional<double> grad_norm,
            int64_t live_bytes);
  // For a run without steps: prints the loss of the first parameters, and stores its line for the
  // file.
  void evaluated(double loss);

  // Returns the lines that this object has stored so far and will write to the file. Pass them to
  // go_on_after() of the Telemetry that continues the run, whose file then begins with them.
  std::string lines() const { return lines_.text(); }
  void go_on_after(const std::string& lines);
  // Returns how many bytes of the stored lines are in memory, not in the spool's file.
  int64_t bytes_in_memory() const { return lines_.bytes_in_memory(); }

  // Prints the summary and writes the file. Throws std::runtime_error, which names the file, if it
  // can't be written.
  void finish(const nlohmann::ordered_json& final_line, const std::vector<std::string>& summary);

  // Ends a run that failed: writes the stored lines and a last line {"failure": reason} to the
  // file. Numbers that are not finite are null in the file. Throws what finish() throws.
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
  // file, if it can't be opened.
  explicit RunLog(std::string path);
  ~RunLog();
  // Call it before the first write(). `step`: how many steps were done before this run; 0 unless
  // this run resumes. Removes a half line at the end of a plain file. If the file has lines of step
  // `step` (counted from 0) or later, which a stopped run has left, writes the line
  // {"resumed_after": step}, because these steps follow once more.
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
