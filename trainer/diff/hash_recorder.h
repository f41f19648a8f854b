#pragma once

#include <comm/call_observer.h>
#include <diff/run_hashes.h>
#include <strategies/strategy.h>
#include <strategies/workload.h>

#include <fstream>
#include <set>

namespace fsdp {

// The bit_hash() of `tensor`, whose first element is number `begin` of a larger tensor.
uint64_t bit_hash(const at::Tensor& tensor, int64_t begin = 0);

// Writes a line for each event of this rank to rank.R in the folder config.reports.hashes. Each
// rank hashes what it holds, so no collective is called; and it looks from outside at the code that
// is compared. Of several replicas the first is recorded.
class HashRecorder final : public CallObserver {
 public:
  // Runs with equal `settings` should have equal bits. Throws std::runtime_error naming a file that
  // can't be written.
  HashRecorder(const TrainConfig& config, const ShardLayout& layout,
               nlohmann::ordered_json settings, int rank);

  // The same workload, whose loss() records what each part makes. The first call registers hooks on
  // the model: so they run after those of the strategy.
  Workload observed(const Workload& workload);

  // The parameters (initial, updated) or the gradients (reduced, clipped), when they are there.
  // After the last update also the moments, unless the stack has no ShardedOptimizer::state():
  // what they hold shows in the updates, and to read them at each costs a fifth of all hashing.
  void record(TensorKind what, int64_t step, Strategy& strategy);
  void record_norm(int64_t step, double norm);

  void issued(const Call& call, const at::Tensor& output) override;
  void waits(const Call&) override {}
  void waited(const Call&, Moved) override {}

 private:
  void hook(Module& model);
  void add_of_part(TensorKind what, std::string name, const at::Tensor& tensor);
  void add(const EventKey& key, int64_t place, const at::Tensor& tensor, int64_t begin = 0);
  std::string unit_of(std::string name) const;  // the innermost unit that has it, or is it
  nlohmann::json values_of(const std::string& name, const at::Tensor& tensor, int64_t begin) const;
  void write(const nlohmann::json& line);

  std::string path_;
  std::ofstream file_;
  int rank_;
  int64_t last_step_;
  bool first_replica_;
  std::optional<EventKey> capture_;                    // whose values are written too
  std::map<std::string, int64_t> places_;              // of parameters
  std::map<std::string, std::vector<int64_t>> sizes_;  // of parameters
  std::set<std::string> units_;
  bool hooked_{}, in_forward_{};  // not when activations are computed again
  int64_t step_{};                // of this part
  int part_{};
  int pass_{-1};                   // its backward, as the engine numbers them
  std::map<EventKey, int> times_;  // that an event has come in this part
  int64_t events_{};               // of this part
  std::vector<Call> calls_;        // of this step, if values are asked for
};

}  // namespace fsdp
