#include <memory/counting_allocator.h>
#include <memory/live_bytes.h>
#include <memory/written_bytes.h>
#include <sys/prctl.h>
#include <train/counted_run.h>
#include <train/rank_metrics.h>

#include <algorithm>
#include <utility>

namespace fsdp {
namespace {

// Returns the bytes of memory that this process has written to and that are not memory of tensors.
// If live_bytes counts fewer bytes than the allocator has given to tensors, the difference counts
// as memory beside tensors.
int64_t written_besides_tensors() {
  const int64_t written = written_bytes();
  return written - std::min(counting_allocator::alive(), live_bytes::now().total);
}

}  // namespace

CountedRun::CountedRun(std::shared_ptr<FlopClock> clock) : clock_(std::move(clock)) {
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  written_ = written_besides_tensors();
}

Workload CountedRun::observed(Workload workload) {
  workload.loss = [this, loss = workload.loss](Module& model, int microbatch, int microbatches,
                                               int64_t step) {
    at::Tensor value = loss(model, microbatch, microbatches, step);
    measure();
    return value;
  };
  return workload;
}

void CountedRun::measure() {
  if (left_out_) return;
  besides_ = std::max(besides_, written_besides_tensors() - written_);
}

void CountedRun::begin() {
  began_ = clock_->now();
  computing_ = clock_->computing();
}

void CountedRun::leave_out(const std::function<void()>& work) {
  const int64_t now = clock_->now(), computing = clock_->computing();
  left_out_ = true;
  work();  // if it throws, the run ends and nothing is counted
  left_out_ = false;
  began_ += clock_->now() - now;
  computing_ += clock_->computing() - computing;
}

nlohmann::ordered_json CountedRun::end(Communicator& comm) {
  // A simulated link moves one call after another, so the barrier ends after all earlier calls.
  comm.barrier(kMetrics).wait();
  const int64_t nanoseconds = clock_->now() - began_;
  const int64_t computing = clock_->computing() - computing_;
  return {{"nanoseconds", gather_from_ranks(comm, nanoseconds)},
          {"computing", gather_from_ranks(comm, computing)},
          {"besides", gather_from_ranks(comm, besides_)}};
}

}  // namespace fsdp
