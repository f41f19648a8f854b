#pragma once

#include <base/child_program.h>
#include <command_line/child.h>
#include <config/train_config.h>
#include <launch/rank_context.h>
#include <receipt/recomputation.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace fsdp {

// Audits a run while it trains (--watch), on rank 0.
// - From time to time, starts a process on rank 0's host that computes a randomly drawn microbatch
//   of the run again. The microbatch belongs to the first step of a run that has not resumed, or to
//   the first step after a checkpoint of this run. At most one such process runs at a time, and at
//   most `config.reports.watch` of them are started in a minute. The process has a low priority.
// - When the process has ended, rank 0 compares its hashes with the hashes that all ranks have
//   recorded for the run's receipt.
// - Rank 0 does not wait for the process before the end of the run.
class Watch {
 public:
  // `config` and `context` must outlive this object. Throws std::runtime_error if no folder for
  // temporary files can be made.
  Watch(const TrainConfig& config, const RankContext& context);

  // Call it when the run has made `steps` steps and, if a save is due, has saved the checkpoint
  // after the last of them. Returns a line to print if a microbatch could not be computed again, or
  // if its hashes could not be compared with those that the ranks have recorded; else "". If hashes
  // differ, wrong() says so.
  std::string after_step(int64_t steps);

  // Call it after the last step. If a process still runs, waits for it. Returns lines to print that
  // report how much was compared.
  std::string end();

  // Returns the step whose checkpoint the running process reads; -1 if there is none. The caller
  // must not remove this checkpoint.
  int64_t step_in_use() const { return process_ && piece_.first_step > 0 ? piece_.first_step : -1; }

  // Returns "" if all numbers that were compared are equal. Otherwise returns the step, the
  // microbatch and the unit of the first number that differs, and the rank and the host that
  // computed it.
  const std::string& wrong() const { return wrong_; }

 private:
  // Returns whether the state before step `step` is known: if `step` is 0, or if this run has saved
  // a checkpoint of that state.
  bool is_known(int64_t step) const;
  // Returns a randomly drawn microbatch that can be compared after `steps` steps and was not drawn
  // before; nullopt if there is none.
  std::optional<Recomputation> draw(int64_t steps);
  void start(const Recomputation& piece);
  // Call it when the process has ended. Compares its hashes, and returns the line that after_step()
  // returns.
  std::string finish();
  // Compares the hashes that the process has computed with those of the ranks. Returns the line
  // that after_step() returns. Throws std::exception if a file can't be read, or if the settings of
  // the process are not those of the run.
  std::string compare();
  std::string could_not(const std::string& what, const std::string& why) const;
  std::string hashes() const { return files_.path() / "hashes"; }
  std::string log() const { return files_.path() / "output"; }

  const TrainConfig& config_;
  const RankContext& context_;
  const OwnFolder files_{"fsdp-watch"};  // temporary folder for the files of the auditing process
  std::mt19937_64 random_{std::random_device()()};
  std::optional<Receipt> head_;  // the run's receipt without events; empty before the first start()
  // The step and the index of the microbatch that the auditing process computes again.
  Recomputation piece_{};
  std::unique_ptr<ChildProgram> process_;  // the auditing process; null: none runs
  // The earliest time at which the next auditing process may start.
  std::chrono::steady_clock::time_point next_;
  int64_t drawn_step_{-1};  // step of the microbatch that was drawn last; -1: none
  std::vector<int> left_;   // indices of the microbatches of drawn_step_ that are not drawn yet
  int64_t events_{};        // number of events whose recomputed hashes are equal
  int64_t microbatches_{};  // number of microbatches whose events are all equal
  std::string wrong_;
};

}  // namespace fsdp
