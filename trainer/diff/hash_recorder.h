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

// Writes the hashes of this rank's events (EventKey: the tensors that a step makes) to the file
// rank.R in a folder, a line for each event.
// - Each rank hashes the elements that it holds, so the recorder issues no collective.
// - If --capture names an event, the recorder also writes the values of this event, and of the
//   events of the same step that lead to it: those of the same parameter. In a rank that ./fsdp why
//   replays, each event of this parameter is an observation (common/watch/watch.h). The name of the
//   observation is the event's place, as place_of() returns it.
// - The recorder does not change the code that trains. It observes this code through hooks on the
//   model and on the loss, and through Strategy::owned().
// - Each rank records the events of its microbatches. Parameters, reduced gradients and moments are
//   recorded only by the ranks of the first replica.
class HashRecorder final : public CallObserver {
 public:
  // A function that returns whether an event is recorded. Only recorded events are hashed.
  using Select = std::function<bool(const EventKey&)>;

  // `settings` are written to the file: two runs with equal settings should have equal bits. If
  // `folder` is empty, nothing is written; the recorder then only observes (below).
  // Without `select`, every event is recorded. Throws std::runtime_error, which names the file, if
  // it can't be written.
  HashRecorder(const TrainConfig& config, const ShardLayout& layout,
               nlohmann::ordered_json settings, int rank, const std::string& folder,
               Select select = nullptr);

  // Returns `workload` with another loss(), which also records the events of each microbatch: the
  // parameters in forward, the outputs of modules, the loss, and the gradients of parameters. The
  // first call of this loss() registers hooks on the model, so that they run after the hooks of the
  // strategy.
  Workload observed(const Workload& workload);

  // Records this rank's parameters (if `what` is initial or updated) or gradients (if `what` is
  // reduced or clipped). Call it at the moment in the step at which `what` describes their values.
  // After the update of the last step, also records the moments, unless the student has not written
  // ShardedOptimizer::state() yet. Moments of earlier steps are not recorded: a difference in them
  // shows in the next update, and reading them in each step would cost a fifth of all hashing.
  void record(TensorKind what, int64_t step, Strategy& strategy);
  // Records the norm of the model's gradient, which is equal on all ranks. Only rank 0 records it.
  void record_norm(int64_t step, double norm);

  void issued(const Call& call, const at::Tensor& output) override;
  void waits(const Call&) override {}
  void waited(const Call&, Moved) override {}

 private:
  void hook(Module& model);
  void add_of_part(TensorKind what, std::string name, const at::Tensor& tensor);
  bool captured(const EventKey& key) const;  // whether the values of the event are written too
  void add(const EventKey& key, int64_t place, const at::Tensor& tensor, int64_t begin = 0);
  // Returns the name of the innermost unit whose module is, or contains, the module or parameter
  // `name`.
  std::string unit_of(std::string name) const;
  nlohmann::json values_of(const std::string& name, const at::Tensor& tensor, int64_t begin) const;
  void write(const nlohmann::json& line);

  std::string path_;
  Select select_;
  std::ofstream file_;
  int rank_;
  int64_t last_step_;
  bool first_replica_;
  // The event that --capture names; empty: the values of no event are written.
  std::optional<EventKey> capture_;
  std::map<std::string, int64_t> places_;  // name of a parameter -> its index in the model
  std::map<std::string, std::vector<int64_t>> sizes_;  // name of a parameter -> its sizes
  std::set<std::string> units_;
  // in_forward_: whether the forward of a microbatch runs. False while backward recomputes
  // activations.
  bool hooked_{}, in_forward_{};
  int64_t step_{};  // step of the current microbatch
  int part_{};      // index of the current microbatch
  // The id that autograd gives to the backward pass of the current microbatch.
  int pass_{-1};
  std::map<EventKey, int> times_;  // event -> how often it has occurred in the current microbatch
  int64_t events_{};               // number of events of the current microbatch so far
  std::vector<Call> calls_;  // collectives of the current step, if capture_ is set; else empty
};

}  // namespace fsdp
