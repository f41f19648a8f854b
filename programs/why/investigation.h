#pragma once

#include <why/parting.h>
#include <why/question.h>
#include <why/source_lines.h>
#include <why/tracer.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// An action of the rank (a write, a wait, ...), and the functions and lines that were running.
struct Finding {
  // Why a finding names its lines:
  // - acts: they ran the action, which concerns the wrong value;
  // - wrote_other: they wrote a right element of the same tensor, but not the wrong one;
  // - skips: they passed over the code below them, which never ran;
  // - parts: up to them, the student's code did the same as the reference solution.
  enum class Because { acts, wrote_other, skips, parts };

  WatchPage::Action action{};
  std::vector<SourceLine> lines;  // the call stack, innermost function first
  // The indices in `lines` of the lines of the student's code, the most telling line first.
  std::vector<size_t> own;
  Because because{Because::acts};
  std::string text{};  // if they part: what the student's code and the reference solution did next

  const SourceLine* line() const { return own.empty() ? nullptr : &lines[own.front()]; }
  // Returns whether a function with the name `function` is in the call stack `lines`.
  bool in(const std::string& function) const;
};

// Finds out how a rank came to a wrong observation, a value that the test observed and did not
// expect. It replays the rank several times, and each time watches another address.
class Investigation {
 public:
  // `command`: the program that replays the rank, and its arguments.
  Investigation(Question question, std::vector<std::string> command);

  // Returns the actions of the rank that decided the wrong observation, the most telling one first.
  // For an element of a tensor these are the last write to it, before that the last write to the
  // place from which its value came, and so on. One finding is put before them, by the first of
  // these rules that applies:
  // - if nothing had waited for a collective: the last line that ran;
  // - if a right element of the same tensor was written by other lines: the first difference;
  // - if the value is NaN: the earliest of the writes;
  // - if no line wrote the value: the line that passed over code which never ran;
  // - else: the write by the function whose name is most like the test's, or a line in the file
  //   after which the suite is named.
  // If the element differs between two runs, the earlier values that are equal in both decide:
  // - if no line had waited for a collective of the element's unit: the line that issued it;
  // - if nothing wrote the element since the observation before: the line that wrote a right
  //   element meanwhile, or the line that passed over code which never ran;
  // - else: the first write, in time, whose value is none of the equal values and no sum of them.
  // The result is empty if no line of the student's code was involved. Throws CannotWatch or
  // std::runtime_error if the rank cannot be replayed.
  std::vector<Finding> find();

  // Replays the rank, and returns what it did up to the wrong observation.
  StepsOfRank steps();

  // Returns whether the last replay reached the wrong observation.
  bool observed() const { return page_->observed; }
  int replays() const { return replays_; }

 private:
  void replay(uint64_t address, uint64_t width, const std::vector<uint64_t>& lines = {});
  Finding finding(const WatchPage::Action& action);
  // Returns the actions that the rank made in the last replay, the latest first.
  std::vector<const WatchPage::Action*> actions() const;
  std::optional<Finding> last_write(uint64_t address, uint64_t width, uint64_t before);
  // Returns the latest collective that was issued after `time` and that no line had waited for when
  // the test looked at the value; nothing if there is none.
  std::optional<Finding> pending_call(uint64_t time);
  uint64_t time_of_issue(const WatchPage::Action& write) const;
  std::vector<uint64_t> addresses();
  // Returns the last write to the address, then the last write to the place from which its value
  // came, and so on. Writes of code that is not the student's are included.
  std::vector<Finding> find_writes(uint64_t address, uint64_t width);
  std::vector<Finding> find_own_writes(int64_t element);
  std::vector<Finding> find_element();
  // Does the same for an element that differs between two runs (./fsdp diff).
  std::vector<Finding> find_element_of_run();
  void blame(std::vector<Finding>& chain) const;
  std::optional<Finding> line_without_write(bool written_before);
  std::optional<Finding> pending_call_of_unit();
  // Returns whether the finding is a write after the observation before the wrong one.
  bool is_recent(const Finding& finding) const;
  // Returns the observation before the wrong one in the last replay; null: there is none.
  const WatchPage::Action* observation_before() const;
  // Returns whether the element had a value at this write that is right, as far as the values which
  // are equal in both runs show it.
  bool is_right(const WatchPage::Action& write) const;
  std::optional<Finding> skipped(uint64_t since = 0);
  std::vector<Finding> find_call();
  std::vector<Finding> trace();
  std::vector<Finding> find_last();
  // in_named_function() and memory_still_alive() each return what one rule finds, or nothing if the
  // rule does not apply. `past`: the result of trace(), the latest finding first.
  std::optional<Finding> in_named_function(const std::vector<Finding>& past) const;
  std::optional<Finding> memory_still_alive(const std::vector<Finding>& past) const;

  Question question_;
  std::vector<std::string> command_;
  SourceLines source_lines_;
  SharedPage page_;
  int replays_{};
  // Key: address of a source line's code. Value: number of the action with which the last replay
  // reached it last.
  std::map<uint64_t, uint64_t> reached_;
  std::vector<CodeLine> code_;
};

}  // namespace fsdp
