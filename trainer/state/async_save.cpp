#include <agreement/agreement.h>
#include <comm/collective_error.h>
#include <signal.h>
#include <state/async_save.h>
#include <state/checkpoint_tensors.h>
#include <state/staged_files.h>
#include <state/unfinished_checkpoint.h>
#include <state/whole_state.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <future>
#include <stdexcept>
#include <stop_token>
#include <system_error>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

constexpr std::chrono::milliseconds kRound{100};  // time between two calls of done() in wait()
// How much nicer the thread that writes is than its rank. On Linux, each thread has a niceness of
// its own; where ranks keep all cores busy, the thread runs mostly while they wait.
constexpr int kNicer = 10;

// While this object lives, the thread that made it blocks all signals, and so do the threads that
// this thread starts.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

// Collective. Returns, for each of `values`, its sum over the ranks of all replicas.
std::vector<int64_t> sums_over_ranks(Communicator& comm, const std::vector<int64_t>& values) {
  // Sums in fp64 are exact, because fp64 has every integer up to 2^53.
  const at::Tensor sums = at::tensor(values, at::kLong).to(comm.device(), at::kDouble);
  comm.all_reduce(sums, kState).wait();
  if (const auto replicas = comm.replicas()) replicas->all_reduce(sums, kState).wait();
  const at::Tensor whole = sums.to(at::kCPU, at::kLong);
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

// The AsyncSave that async_save() returns: a thread on each rank writes the files of the rank.
class ThreadedSave : public AsyncSave {
 public:
  // Collective. Makes the folder of the checkpoint. Throws std::runtime_error on every rank if the
  // folder cannot be made.
  ThreadedSave(const std::string& directory, int64_t step, nlohmann::ordered_json run,
               std::function<void()> then, Communicator& comm)
      : comm_(comm),
        run_(std::move(run)),
        then_(std::move(then)),
        checkpoint_(directory, step, comm) {}
  ~ThreadedSave() override {
    stop_.request_stop();
    if (task_.valid()) task_.wait();
    const bool ended = stage_ == Stage::complete || stage_ == Stage::failed;
    if (!ended && comm_.global_rank() == 0) checkpoint_.remove();
  }
  ThreadedSave(const ThreadedSave&) = delete;

  // Collective. Copies the tensors that this rank will write, and starts the thread that writes
  // them.
  void begin(CheckpointFormat format, const WholeState& state) {
    const auto failure = pass_tensors(format, state, comm_,
                                      [&](const TensorFile& file) { return staged_.open(file); });
    agree_on(comm_, [&] {
      if (failure) std::rethrow_exception(failure);
      if (comm_.global_rank() == 0) parameters_ = parameters_json(state.parameters());
    });
    start([this] { return staged_.write(checkpoint_.folder(), stop_.get_token()); });
  }

  bool done() override {
    if (stage_ == Stage::complete) return true;
    if (stage_ == Stage::failed) throw std::runtime_error(error_);
    const CallerScope caller("async_save()");
    if (task_.valid() && task_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      result_ = task_.get();
    const auto sums = sums_over_ranks(
        comm_, {task_.valid() ? 1 : 0, result_.failure ? 1 : 0, staged_.bytes_left()});
    const int64_t running = sums[0], failed = sums[1];
    bytes_left_ = sums[2];
    if (failed > 0) fail();
    if (running > 0) return false;
    if (stage_ == Stage::completing) {
      stage_ = Stage::complete;
      return true;
    }
    complete();
    return false;
  }

  void wait(const std::function<void(int64_t bytes_left)>& progress) override {
    while (!done()) {
      if (progress) progress(bytes_left_);
      if (task_.valid()) task_.wait_for(kRound);
    }
  }

 private:
  // What the thread of this rank returns: the files that it has written, or why it failed.
  struct Result {
    std::vector<SavedFile> files;
    std::exception_ptr failure;
  };
  enum class Stage { writing, completing, complete, failed };

  // Starts a thread that runs `work`. If no thread can be started, stores the failure in `result_`.
  void start(std::function<std::vector<SavedFile>()> work) {
    const NoSignals no_signals;  // signal handlers run only in the caller's threads
    try {
      task_ = std::async(std::launch::async, [work = std::move(work)]() -> Result {
        (void)nice(kNicer);
        try {
          return {work(), nullptr};
        } catch (const std::exception&) {
          return {{}, std::current_exception()};
        }
      });
    } catch (const std::system_error&) {
      result_.failure = std::current_exception();
    }
  }

  // Collective. Call it when the files of all ranks are on the disk. Rank 0 starts a thread that
  // writes checkpoint.json and SHA256SUMS and gives the checkpoint its name.
  void complete() {
    const auto files = files_of_ranks(comm_, [&] { return result_.files; });
    stage_ = Stage::completing;
    if (comm_.global_rank() != 0) return;
    start([this, files]() -> std::vector<SavedFile> {
      checkpoint_.complete(run_, parameters_, files);
      if (then_) then_();
      return {};
    });
  }

  // Collective. Call it when the save has failed on at least one rank. Every rank stops its thread,
  // and rank 0 removes the files of the unfinished checkpoint. Then every rank throws
  // std::runtime_error with the text of the error of the lowest rank that failed.
  [[noreturn]] void fail() {
    stop_.request_stop();
    if (task_.valid()) result_ = task_.get();
    try {
      agree_on(comm_, [&] {
        if (result_.failure) std::rethrow_exception(result_.failure);
      });
    } catch (const CollectiveError&) {
      throw;
    } catch (const std::runtime_error& error) {
      error_ = error.what();
    }
    stage_ = Stage::failed;
    agree_on_rank_0(comm_, [&] { checkpoint_.remove(); });
    throw std::runtime_error(error_);
  }

  Communicator& comm_;
  // The members "run" and "parameters" of checkpoint.json.
  nlohmann::ordered_json run_, parameters_;
  std::function<void()> then_;
  UnfinishedCheckpoint checkpoint_;
  Stage stage_{Stage::writing};  // progress of the save, equal on all ranks
  StagedFiles staged_;           // copies of the tensors that this rank writes
  int64_t bytes_left_{};  // bytes that all ranks still had to write when done() was last called
  std::string error_;     // text of the error, if the save failed
  Result result_;
  std::stop_source stop_;
  std::future<Result> task_;  // result of this rank's thread; not valid if no thread runs
};

}  // namespace

std::unique_ptr<AsyncSave> async_save(const std::string& directory, CheckpointFormat format,
                                      int64_t step, const nlohmann::ordered_json& run,
                                      ModelState state, Communicator& comm,
                                      std::function<void()> then) {
  const CallerScope caller("async_save()");
  const WholeState whole(std::move(state), comm);
  auto save = std::make_unique<ThreadedSave>(directory, step, run, std::move(then), comm);
  save->begin(format, whole);
  return save;
}

}  // namespace fsdp
