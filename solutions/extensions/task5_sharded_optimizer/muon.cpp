#include <memory/memory_class.h>
#include <optim/muon.h>
#include <sharded_optimizer_impl.h>

namespace fsdp {

// The updates of one unit while they move between its shards and the owners of its matrices.
struct ShardedOptimizerImpl::Exchange {
  std::shared_ptr<FlatParameter> unit;  // null: it has no gradient, so it is left out
  // [shard_numel], owned: first U of this rank's pieces, at last their orthogonalized updates. The
  // other ranks read it until the reduce-scatter shows that they have waited for the all-gather.
  at::Tensor shard;
  at::Tensor full;  // [padded_numel], owned: U of the whole unit
  Handle moving;
};

std::vector<MatrixRound> ShardedOptimizerImpl::plan_rounds() const {
  std::vector<UnitMatrices> units;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    UnitMatrices& matrices = units.emplace_back(UnitMatrices{unit, {}});
    const auto& parameters = units_[unit]->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& [name, tensor] = parameters[i];
      if (!tensor.requires_grad() || !is_muon(groups_[group_of(name, groups_)])) continue;
      check_matrix(name, tensor.sizes().vec());
      if (tensor.numel() == 0) continue;
      matrices.matrices.push_back(
          {name, units_[unit]->layout().offsets[i], tensor.size(0), tensor.size(1)});
    }
  }
  return plan_matrices(std::move(units), comm_->data_parallel_size());
}

// For each unit, an all-gather gives every rank the whole updates, and each owner orthogonalizes
// its matrices. All else is then set to zero, so the sum over ranks in a reduce-scatter gives each
// rank its shard of the orthogonalized updates.
void ShardedOptimizerImpl::step_matrices() {
  const at::NoGradGuard no_grad;
  for (size_t group = 0; group < groups_.size(); ++group)
    if (is_muon(groups_[group])) allocate_state(groups_[group].options, pieces_[group]);
  for (const MatrixRound& round : rounds_) {
    std::vector<Exchange> exchanges;
    for (const UnitMatrices& matrices : round)
      exchanges.push_back(gather_updates(matrices));
    for (size_t i = 0; i < round.size(); ++i)
      return_updates(exchanges[i], round[i]);
    for (Exchange& exchange : exchanges)
      apply_updates(exchange);
    comm_->wait_for_readers();  // at once, and frees the shards before the next round
  }
}

ShardedOptimizerImpl::Exchange ShardedOptimizerImpl::gather_updates(const UnitMatrices& matrices) {
  Exchange exchange;
  const auto& unit = units_[matrices.unit];
  if (!unit->sharded_gradient().defined()) return exchange;
  exchange.unit = unit;
  exchange.shard = comm_->empty(unit->shard_numel()).zero_();
  visit_muon_pieces(*unit, exchange.shard, average_gradient);
  const MemoryScope scope(MemoryClass::gathered);
  exchange.full = comm_->empty(unit->layout().padded_numel);
  exchange.moving = comm_->all_gather_into(exchange.full, exchange.shard, unit->unit());
  return exchange;
}

void ShardedOptimizerImpl::return_updates(Exchange& exchange, const UnitMatrices& matrices) const {
  if (!exchange.unit) return;
  exchange.moving.wait();
  const at::Tensor& full = exchange.full;
  int64_t end = 0;  // of the elements that are done
  for (const OwnedMatrix& matrix : matrices.matrices) {
    if (matrix.owner != comm_->global_rank()) continue;
    full.slice(0, end, matrix.offset).zero_();
    end = matrix.offset + matrix.numel();
    orthogonalize(full.slice(0, matrix.offset, end).view({matrix.rows, matrix.columns}));
  }
  full.slice(0, end).zero_();
  exchange.moving = comm_->reduce_scatter_into(exchange.shard, full, exchange.unit->unit());
}

void ShardedOptimizerImpl::apply_updates(Exchange& exchange) {
  if (!exchange.unit) return;
  exchange.moving.wait();
  exchange.full.reset();
  visit_muon_pieces(*exchange.unit, exchange.shard, apply_orthogonal_update);
  exchange.shard.reset();
}

template <class Visit>
void ShardedOptimizerImpl::visit_muon_pieces(const FlatParameter& unit, const at::Tensor& shard,
                                             const Visit& visit) {
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (!is_muon(groups_[group])) continue;
    for (size_t i = 0; i < runs_[group].size(); ++i) {
      const Run& run = runs_[group][i];
      if (run.unit.get() != &unit) continue;
      Piece piece = pieces_[group][i];
      piece.gradient = unit.sharded_gradient().narrow(0, run.begin, run.numel);
      visit(groups_[group].options, piece, shard.narrow(0, run.begin, run.numel));
    }
  }
}

}  // namespace fsdp
