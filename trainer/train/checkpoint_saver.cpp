#include <agreement/agreement.h>
#include <comm/collective_error.h>
#include <memory/live_bytes.h>
#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <train/checkpoint_saver.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

std::string not_saved(const TrainConfig& config, int64_t steps, const std::string& why) {
  const auto latest = latest_step(config.checkpoint.dir);
  return "--checkpoint-dir " + config.checkpoint.dir + ": step " + std::to_string(steps) +
         " can't be saved: " + why +
         (latest ? "; when this is fixed, continue from step " + std::to_string(*latest) +
                       " (--resume " + config.checkpoint.dir + ")"
                 : "");
}

// Returns the name of the file in the folder of checkpoints to which the run's options are written.
// A resumed run uses a new name, so that the file with the options of the first run stays.
std::string name_of_options(const TrainConfig& config) {
  std::string usual = "run.toml";
  std::error_code unknown;
  if (config.checkpoint.first_step == 0 ||
      !std::filesystem::exists(config.checkpoint.dir + '/' + usual, unknown))
    return usual;
  char name[48];
  std::snprintf(name, sizeof name, "run-from-%06lld.toml",
                static_cast<long long>(config.checkpoint.first_step));
  return name;
}

std::string still_written(int64_t steps, int64_t bytes_left) {
  const std::string waits = "waits until step " + std::to_string(steps) + " is saved: ";
  if (bytes_left == 0) return waits + "its files are not on the disk yet";
  char left[48];
  std::snprintf(left, sizeof left, "%.1f MB are to be written",
                static_cast<double>(bytes_left) / 1e6);
  return waits + left;
}

}  // namespace

CheckpointSaver::CheckpointSaver(const TrainConfig& config, Communicator& comm,
                                 std::function<void(const std::string& line)> say)
    : config_(config), comm_(comm), say_(std::move(say)) {}

bool CheckpointSaver::is_due(int64_t steps) const {
  return !config_.checkpoint.dir.empty() &&
         (steps % config_.checkpoint.save_every == 0 || steps == config_.end_step());
}

void CheckpointSaver::after_step(int64_t steps, const Json& settings, Strategy& strategy) {
  const bool due = is_due(steps);
  if (saving_ && !due) {
    live_bytes::enter(Phase::init);
    complete(/*waits=*/false);
  }
  if (due) save(steps, settings, strategy);
}

void CheckpointSaver::save(int64_t steps, const Json& settings, Strategy& strategy) {
  // Memory that a save allocates does not count as memory of a step.
  live_bytes::enter(Phase::init);
  if (saving_) complete(/*waits=*/true);
  const CheckpointConfig& checkpoint = config_.checkpoint;
  if (checkpoint.async && steps != config_.end_step()) {
    report_failure(steps, [&] {
      saving_ = async_save(checkpoint.dir, checkpoint.format, steps, settings, strategy.state(),
                           comm_, [this, steps] { finish(steps); });
    });
    saving_step_ = steps;
    return;
  }
  report_failure(steps, [&] {
    save_checkpoint(checkpoint.dir, checkpoint.format, steps, settings, strategy.state(), comm_);
  });
  agree_on_rank_0(comm_, [&] { finish(steps); });
  say("saved step " + std::to_string(steps) + " in " + checkpoint.dir);
}

// Completes the asynchronous save if the files of all ranks are on the disk. If they are not, and
// `waits` is true, waits for them; if `waits` is false, the save goes on.
void CheckpointSaver::complete(bool waits) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kBetweenLines{2};
  auto next_line = Clock::now() + kBetweenLines;
  const auto progress = [&](int64_t bytes_left) {
    if (Clock::now() < next_line) return;
    say(still_written(saving_step_, bytes_left));
    next_line += kBetweenLines;
  };
  bool done = true;
  report_failure(saving_step_, [&] {
    if (waits)
      saving_->wait(progress);
    else
      done = saving_->done();
  });
  if (!done) return;
  saving_.reset();
  say("saved step " + std::to_string(saving_step_) + " in " + config_.checkpoint.dir);
}

// Runs `action`. If it throws a std::runtime_error, adds to the error's text that step `steps`
// could not be saved and from which step the run can continue.
template <class Action>
void CheckpointSaver::report_failure(int64_t steps, const Action& action) const {
  try {
    action();
  } catch (const CollectiveError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(not_saved(config_, steps, error.what()));
  }
}

// Called on rank 0 when a checkpoint has its name. After the first save of a run, writes the
// options of the run to a file, with which the user can repeat the run. Removes old checkpoints.
// Runs no torch operator, because a thread of async_save() may call it.
void CheckpointSaver::finish(int64_t steps) const {
  const CheckpointConfig& checkpoint = config_.checkpoint;
  const bool first_of_run = steps - checkpoint.first_step <= checkpoint.save_every;
  if (first_of_run && !config_.reports.saved_options.empty())
    write_text(checkpoint.dir, name_of_options(config_), config_.reports.saved_options);
  remove_old();
}

void CheckpointSaver::remove_old() const {
  const CheckpointConfig& checkpoint = config_.checkpoint;
  if (checkpoint.keep) remove_old_checkpoints(checkpoint.dir, *checkpoint.keep, held_);
}

void CheckpointSaver::hold(int64_t step) {
  const int64_t before = std::exchange(held_, step);
  const bool released = before >= 0 && before != step;
  // If an asynchronous save runs, finish() removes the old checkpoints when the save ends.
  if (released && !saving_) remove_old();
}

void CheckpointSaver::say(const std::string& line) const {
  if (comm_.rank() == 0) say_(line);
}

}  // namespace fsdp
