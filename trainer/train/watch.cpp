#include <launch/launched.h>
#include <receipt/audit_command.h>
#include <state/checkpoint_folder.h>
#include <sys/resource.h>
#include <train/run_receipt.h>
#include <train/watch.h>

#include <filesystem>
#include <numeric>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// Niceness of an auditing process, so that it has a lower priority than the ranks.
constexpr int kNice = 10;

// Returns whether all ranks have recorded an event of step `step`. If so, they have recorded all
// events of the steps before it.
bool have_all_recorded(const Receipt& receipt, int64_t step) {
  std::set<int> ranks;
  for (const auto& [key, leaf] : receipt.leaves)
    if (key.step == step) ranks.insert(leaf.ranks.begin(), leaf.ranks.end());
  return ranks.size() == receipt.hosts.size();
}

}  // namespace

Watch::Watch(const TrainConfig& config, const RankContext& context)
    : config_(config), context_(context) {}

std::string Watch::after_step(int64_t steps) {
  std::string line;
  if (process_ && process_->has_ended(0ms)) line = finish();
  if (process_ || std::chrono::steady_clock::now() < next_) return line;
  if (const auto piece = draw(steps)) start(*piece);
  return line;
}

std::string Watch::end() {
  std::string line;
  if (process_) {
    while (!process_->has_ended(1s)) {
    }
    line = finish();
  }
  if (!line.empty()) line += '\n';
  return line + "watch: microbatches that one process has computed again: " +
         std::to_string(microbatches_) + "; equal events: " + std::to_string(events_);
}

bool Watch::is_known(int64_t step) const {
  const CheckpointConfig& checkpoint = config_.checkpoint;
  if (step <= checkpoint.first_step) return step == 0;
  std::error_code unknown;
  return std::filesystem::exists(step_folder(checkpoint.dir, step), unknown);
}

std::optional<Recomputation> Watch::draw(int64_t steps) {
  // The last step that all ranks have certainly recorded, because all ranks have begun to record
  // the step after it.
  const int64_t last = steps - 2;
  if (last < 0) return std::nullopt;
  const int64_t step = last - last % config_.checkpoint.save_every;
  if (step != drawn_step_ && is_known(step)) {
    drawn_step_ = step;
    left_.resize(static_cast<size_t>(config_.batch_partition().microbatches()));
    std::iota(left_.begin(), left_.end(), 0);
  }
  if (left_.empty() || step != drawn_step_ || !is_known(step)) return std::nullopt;
  std::swap(left_[random_() % left_.size()], left_.back());
  const int index = left_.back();
  left_.pop_back();
  return Recomputation{step, step + 1, index};
}

void Watch::start(const Recomputation& piece) {
  next_ = std::chrono::steady_clock::now() + 60'000ms / config_.reports.watch;
  std::filesystem::remove_all(hashes());
  const std::string own = std::filesystem::read_symlink("/proc/self/exe");
  const std::string& other = config_.reports.watch_program;
  const AuditSources sources{other.empty() ? own : other, config_.checkpoint.dir, {}};
  if (!head_) head_ = recorded_receipt(config_, context_, StepRange{0, 0});
  piece_ = piece;
  process_ = start_child(audit_command(sources, *head_, piece, hashes()), log(), [] {
    forget_launcher();  // the auditing process is not a rank of this run
    setpriority(PRIO_PROCESS, 0, kNice);
  });
}

std::string Watch::finish() {
  const ChildProgram::End end = process_->end(0ms);
  process_.reset();
  if (!end.ok()) {
    const std::string error = error_in(log(), "fsdp train");
    return could_not("computed again", error.empty() ? "the process " + end.text() : error);
  }
  try {
    return compare();
  } catch (const std::exception& error) {
    // compare() throws, for example, if the run's text file was changed.
    return could_not("compared", error.what());
  }
}

std::string Watch::compare() {
  const Receipt recorded =
      recorded_receipt(config_, context_, StepRange{piece_.first_step - 1, piece_.end_step + 1});
  if (!have_all_recorded(recorded, piece_.end_step))
    return could_not("compared", "some ranks have not written their hashes into " +
                                     folder_of_ranks(config_) +
                                     "; all hosts must share this folder");
  const Verdict verdict = compare_with(recorded, piece_, read_hashes(hashes()));
  if (!verdict.wrong.empty()) {
    wrong_ = verdict.wrong + (verdict.ranks.empty() ? "" : ", " + makers(recorded, verdict.ranks)) +
             ", is not what one process computes on " + recorded.hosts.front() +
             ": test the memory of these hosts, leave out a wrong one, and continue with --resume";
    return "";
  }
  events_ += verdict.equal;
  ++microbatches_;
  return "";
}

std::string Watch::could_not(const std::string& what, const std::string& why) const {
  return "watch: " + text_of(piece_) + " could not be " + what + ": " + why;
}

}  // namespace fsdp
