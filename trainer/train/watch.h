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
// - A process on rank 0's host computes one drawn microbatch again, of the first step of the run or
//   of the first step after a checkpoint. At most one such process runs at a time, and at most
//   `config.reports.watch` are started in a minute. It has a low priority.
// - When the process has ended, rank 0 compares its hashes with those that all ranks have recorded
//   for the run's receipt.
// - Nothing waits for the process before the end of the run.
class Watch {
 public:
  // Both arguments must live as long as this object. Throws std::runtime_error if no folder for
  // temporary files can be made.
  Watch(const TrainConfig& config, const RankContext& context);

  // Call it when the run has made `steps` steps, and their checkpoint is saved if one is due.
  // Returns a line to print if a microbatch could not be computed again; else "".
  std::string after_step(int64_t steps);

  // Call it after the last step. Waits for a process that still runs. Returns lines that say what
  // was compared.
  std::string end();

  // Returns the step whose checkpoint the process reads; -1 if none. It must not be removed.
  int64_t step_in_use() const { return process_ && piece_.first_step > 0 ? piece_.first_step : -1; }

  // Returns "" unless a number of the run differs. Then it returns the step, the microbatch and the
  // unit of the first such number, and the rank and the host that made it.
  const std::string& wrong() const { return wrong_; }

 private:
  // Returns whether the state before the step is known: the run began with it, or has saved it.
  bool is_known(int64_t step) const;
  // Returns a drawn microbatch that can be compared after `steps` steps and was not drawn before;
  // nullopt if there is none.
  std::optional<Recomputation> draw(int64_t steps);
  void start(const Recomputation& piece);
  // Call it when the process has ended. Returns what after_step() returns.
  std::string finish();
  // Compares what the process has computed. Returns what after_step() returns. Throws
  // std::exception if a file can't be read, or if the settings of the process are not the run's.
  std::string compare();
  std::string could_not(const std::string& what, const std::string& why) const;
  std::string hashes() const { return files_.path() / "hashes"; }
  std::string log() const { return files_.path() / "output"; }

  const TrainConfig& config_;
  const RankContext& context_;
  const OwnFolder files_{"fsdp-watch"};  // has the files of the process
  std::mt19937_64 random_{std::random_device()()};
  std::optional<Receipt> head_;  // the run's receipt without events; empty before the first draw
  Recomputation piece_{};        // what the process computes
  std::unique_ptr<ChildProgram> process_;       // null: no process runs
  std::chrono::steady_clock::time_point next_;  // no process is started before this time
  int64_t drawn_step_{-1};                      // the step of the last draw
  std::vector<int> left_;                       // microbatches of this step, not drawn yet
  int64_t events_{};                            // that were equal
  int64_t microbatches_{};                      // that were equal
  std::string wrong_;
};

}  // namespace fsdp
