#pragma once

#include <optim/matrix_owners.h>
#include <sharded_optimizer.h>

namespace fsdp {

class ShardedOptimizerImpl final : public ShardedOptimizer {
 public:
  ShardedOptimizerImpl(std::vector<std::shared_ptr<FlatParameter>> units,
                       std::vector<ParameterGroup> groups, std::shared_ptr<Communicator> comm);

  void step() override;
  void zero_grad() override;
  double clip_grad_norm(double max_norm) override;
  double clip_grad_norm(double max_norm, double norm_type) override;
  std::vector<StateRange> state() override;

 private:
  struct Run {
    std::shared_ptr<FlatParameter> unit;
    int64_t begin;  // [elements] in the unit's shard
    int64_t numel;
  };
  void add_runs(const std::shared_ptr<FlatParameter>& unit);
  void step_group(size_t group);
  void stop_reading();  // returns when neither this rank nor others read this rank's shards
  double clip(double max_norm, double norm) const;
  void add_moments(StateRange& range, const FlatParameter& unit, int64_t begin) const;

  // Muon, an extension.
  struct Exchange;
  std::vector<MatrixRound> plan_rounds() const;
  void step_matrices();
  Exchange gather_updates(const UnitMatrices& matrices);
  void return_updates(Exchange& exchange, const UnitMatrices& matrices) const;
  void apply_updates(Exchange& exchange);
  // Calls `visit` with the options of each piece in the unit's shard that Muon updates, the piece,
  // and its elements of `shard`, a tensor like the unit's shard.
  template <class Visit>
  void visit_muon_pieces(const FlatParameter& unit, const at::Tensor& shard, const Visit& visit);

  std::vector<std::shared_ptr<FlatParameter>> units_;  // also frozen ones
  std::vector<ParameterGroup> groups_;
  std::shared_ptr<Communicator> comm_;
  std::vector<std::vector<Run>> runs_;      // per group
  std::vector<std::vector<Piece>> pieces_;  // per group, one per run: the state
  std::vector<MatrixRound> rounds_;         // the matrices that Muon updates
};

}  // namespace fsdp
