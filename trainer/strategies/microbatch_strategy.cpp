#include <memory/live_bytes.h>
#include <offload/copies_in_file.h>
#include <strategies/microbatch_strategy.h>
#include <strategies/offloaded_moments.h>
#include <strategies/state_without_ranges.h>

#include <numeric>
#include <utility>

namespace fsdp {
namespace {

std::vector<int> microbatches_of(const TrainConfig& config, std::optional<int> rank) {
  if (config.training.only_microbatch) return {*config.training.only_microbatch};
  const BatchPartition partition = config.batch_partition();
  std::vector<int> indices(
      static_cast<size_t>(rank ? partition.accumulation_steps : partition.microbatches()));
  std::iota(indices.begin(), indices.end(), 0);
  if (rank)
    for (int& microbatch : indices)
      microbatch = partition.microbatch(*rank, microbatch);
  return indices;
}

// Returns the sum of `losses` in fp64, added in the order of `partition`. The sum has the shape [1]
// if each loss is a scalar, and [1, n] if each loss has the shape [n].
at::Tensor sum_of_losses(const std::vector<at::Tensor>& losses, const BatchPartition& partition) {
  TreeSum sum(partition);
  std::vector<at::Tensor> running;
  for (const at::Tensor& loss : losses) {
    if (!running.empty()) sum.push_partial_sum(running);
    running = sum.fold({loss.detach().to(at::kDouble)});
  }
  return running[0].unsqueeze(0);
}

// While this object lives, the model is in eval() mode, for example without dropout. The destructor
// sets train() mode.
struct Evaluating {
  explicit Evaluating(Module& model) : model(model) { model.eval(); }
  ~Evaluating() { model.train(); }
  Evaluating(const Evaluating&) = delete;
  Module& model;
};

}  // namespace

MicrobatchStrategy::MicrobatchStrategy(const TrainConfig& config, Workload workload,
                                       std::optional<int> rank)
    : workload_(std::move(workload)),
      partition_(config.batch_partition()),
      microbatches_(microbatches_of(config, rank)),
      plays_all_ranks_(!rank && !config.training.only_microbatch),
      offload_dir_(config.memory.offload_dir) {}

at::Tensor MicrobatchStrategy::forward_backward(int64_t step) {
  begin();
  const auto own = static_cast<int>(microbatches_.size());
  TreeSum sums(plays_all_ranks_ ? partition_ : BatchPartition{.accumulation_steps = own});
  std::vector<at::Tensor> losses;
  for (const int microbatch : microbatches_) {
    const bool begins = losses.empty() || adds_apart() || sums.starts_new_partial_sum();
    if (begins && !losses.empty()) {
      auto sum = take_sum();
      sums.push_partial_sum(offload_dir_.empty() ? std::move(sum)
                                                 : copies_in_file(offload_dir_, sum, kSumsInFile));
    }
    live_bytes::enter(Phase::forward);
    begin_forward();
    losses.push_back(workload_.loss(*model_, microbatch, partition_.microbatches(), step));
    live_bytes::enter(Phase::backward);
    compute_gradients(losses.back(), begins);
    losses.back() = losses.back().detach();
    add(sums);
  }
  end_microbatches();
  return sum_of(losses);
}

at::Tensor MicrobatchStrategy::evaluate(const MicrobatchValue& value) {
  begin();
  const at::NoGradGuard no_grad;
  const Evaluating evaluating(*model_);
  std::vector<at::Tensor> values;
  for (const int microbatch : microbatches_)
    values.push_back(value(*model_, microbatch, partition_.microbatches()));
  return sum_of(values);
}

at::Tensor MicrobatchStrategy::sum_of(const std::vector<at::Tensor>& losses) const {
  // If this process computes the microbatches of all ranks, adds their losses in the order in which
  // the ranks would all-reduce them: over all ranks at once, without a level for replicas.
  if (plays_all_ranks_) {
    BatchPartition all = partition_;
    all.shards = all.ranks();
    all.replicas = 1;
    return sum_of_losses(losses, all);
  }
  if (partition_.reduce_last)
    return sum_of_losses(losses, {.accumulation_steps = partition_.accumulation_steps});
  return at::stack(losses).detach().to(at::kDouble);
}

ModelState MicrobatchStrategy::state() {
  ModelState state = state_without_ranges(distinct_parameters(*model_));
  state.ranges = ranges();
  return state;
}

}  // namespace fsdp
