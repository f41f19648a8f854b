#pragma once

#include <why/question.h>
#include <why/source_lines.h>
#include <why/tracer.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// An action of the rank, and the lines of code that were running.
struct Finding {
  // Why the lines are named. `acts`: they ran the action, which concerns the wrong value.
  // `wrote_other`: they wrote a right element of the same tensor, and not the wrong one. `skips`:
  // they passed over the code below them.
  enum class Because { acts, wrote_other, skips };

  WatchPage::Action action{};
  std::vector<SourceLine> lines;  // innermost first
  std::vector<size_t> own;        // in `lines`: the student's code, the most telling line first
  Because because{Because::acts};

  const SourceLine* line() const { return own.empty() ? nullptr : &lines[own.front()]; }
  bool in(const std::string& function) const;  // whether a function of this name was running
};

// Finds out how a rank came to a wrong observation: replays it, as often as is needed.
class Investigation {
 public:
  // `command` replays the rank; its first word is the program.
  Investigation(Question question, std::vector<std::string> command);

  // Returns what decided the observation, the most telling finding first. For an element of a
  // tensor, these are the last write, the last write to where its value came from, and so on.
  // The first of these conditions that holds decides what comes before them:
  // - if a collective is pending, the last line that ran;
  // - if a right element of the same tensor came to be in another way, the first difference;
  // - if the value is NaN, the write that is the earliest in time;
  // - if no line wrote the value, the line that passed over code which never ran.
  // The result is empty if no line of the student's code was involved. Throws CannotWatch or
  // std::runtime_error if the rank cannot be replayed.
  std::vector<Finding> find();

  bool observed() const { return page_->observed; }  // in the last replay
  int replays() const { return replays_; }

 private:
  void replay(uint64_t address, uint64_t width, const std::vector<uint64_t>& lines = {});
  Finding finding(const WatchPage::Action& action);
  // Returns the actions of the last replay, the latest first.
  std::vector<const WatchPage::Action*> actions() const;
  std::optional<Finding> last_write(uint64_t address, uint64_t width, uint64_t before);
  // Returns the collective that was issued after `time` and for which nothing had waited when the
  // test looked; nothing if there is none.
  std::optional<Finding> pending_call(uint64_t time);
  uint64_t time_of_issue(const WatchPage::Action& write) const;
  std::vector<uint64_t> addresses();
  // Returns the last write to the address, then the last write to where its value came from, and so
  // on, also of code that is not the student's.
  std::vector<Finding> find_writes(uint64_t address, uint64_t width);
  std::vector<Finding> find_own_writes(int64_t element);
  std::vector<Finding> find_element();
  std::optional<Finding> skipped();
  std::vector<Finding> find_call();
  std::vector<Finding> trace();
  std::vector<Finding> find_last();
  // Each of these two returns the finding of one rule, or nothing if the rule does not apply.
  // `past`: the result of trace(), the latest finding first.
  std::optional<Finding> in_named_function(const std::vector<Finding>& past) const;
  std::optional<Finding> memory_still_alive(const std::vector<Finding>& past) const;

  Question question_;
  std::vector<std::string> command_;
  SourceLines source_lines_;
  SharedPage page_;
  int replays_{};
  std::map<uint64_t, uint64_t> reached_;  // in the last replay
  std::vector<CodeLine> code_;
};

}  // namespace fsdp
