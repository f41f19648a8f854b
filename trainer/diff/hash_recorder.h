#pragma once

#include <comm/call_observer.h>
#include <diff/run_hashes.h>
#include <strategies/strategy.h>
#include <strategies/workload.h>

#include <fstream>
#include <functional>
#include <set>

namespace fsdp {

// Returns the bit_hash() of `tensor`, whose first element is element `begin` of a larger tensor.
uint64_t bit_hash(const at::Tensor& tensor, int64_t begin = 0);

// Writes a line for each event of this rank to the file rank.R in a folder.
// - Each rank hashes the elements that it holds, so no collective is issued.
// - The recorder does not change the code that trains. It observes this code through hooks on the
//   model and on the loss, and through Strategy::owned().
// - Each rank records its microbatches. Parameters, reduced gradients and moments are recorded by
//   the ranks of the first replica only.
class HashRecorder final : public CallObserver {
 public:
  // Returns whether an event is recorded. Only recorded events are hashed.
  using Select = std::function<bool(const EventKey&)>;

  // `settings` are written to the file: two runs with equal settings should have equal bits.
  // Without `select`, every event is recorded. Throws std::runtime_error, which names the file, if
  // it can't be written.
  HashRecorder(const TrainConfig& config, const ShardLayout& layout,
               nlohmann::ordered_json settings, int rank, const std::string& folder,
               Select select = nullptr);

  // Returns `workload` with a loss() that also records what each microbatch makes. The first call
  // of loss() registers hooks on the model, so that they run after the hooks of the strategy.
  Workload observed(const Workload& workload);

  // Records this rank's parameters (`what`: initial, updated) or gradients (reduced, clipped). Call
  // it when they have these values. After the update of the last step, also records the moments,
  // unless the stack's ShardedOptimizer::state() is not written yet. Moments of earlier steps are
  // not recorded: a difference in them shows in the next update, and reading them in each step
  // would cost a fifth of all hashing.
  void record(TensorKind what, int64_t step, Strategy& strategy);
  // Records the norm of the gradients, on rank 0 only.
  void record_norm(int64_t step, double norm);

  void issued(const Call& call, const at::Tensor& output) override;
  void waits(const Call&) override {}
  void waited(const Call&, Moved) override {}

 private:
  void hook(Module& model);
  void add_of_part(TensorKind what, std::string name, const at::Tensor& tensor);
  void add(const EventKey& key, int64_t place, const at::Tensor& tensor, int64_t begin = 0);
  // Returns the innermost unit that contains the module or parameter `name`, or is this module.
  std::string unit_of(std::string name) const;
  nlohmann::json values_of(const std::string& name, const at::Tensor& tensor, int64_t begin) const;
  void write(const nlohmann::json& line);

  std::string path_;
  Select select_;
  std::ofstream file_;
  int rank_;
  int64_t last_step_;
  bool first_replica_;
  std::optional<EventKey> capture_;                    // event whose values are written too
  std::map<std::string, int64_t> places_;              // parameter -> its index in the model
  std::map<std::string, std::vector<int64_t>> sizes_;  // parameter -> its sizes
  std::set<std::string> units_;
  bool hooked_{}, in_forward_{};   // in_forward_: not while activations are recomputed
  int64_t step_{};                 // of the current microbatch
  int part_{};                     // index of the current microbatch
  int pass_{-1};                   // autograd's number of the microbatch's backward pass
  std::map<EventKey, int> times_;  // event -> how often it occurred in this microbatch
  int64_t events_{};               // number of events of this microbatch so far
  std::vector<Call> calls_;        // collectives of this step, if there is a capture_
};

}  // namespace fsdp
