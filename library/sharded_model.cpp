#include <buffers.h>
#include <c10/util/ScopeExit.h>
#include <clip_over_ranks.h>
#include <model_checks.h>
#include <sharded_model.h>
#include <sharded_model_impl.h>

#include <stdexcept>

namespace fsdp {

ShardedModel::ShardedModel(Module& net, std::shared_ptr<Communicator> comm,
                           const FullyShardedDataParallelOptions& options)
    : owner_(net.weak_from_this().lock()),
      sharding_(ShardedModelImpl::create(net, std::move(comm), options)) {}

FullySharded& ShardedModel::fully_sharded() const {
  return sharding_->sharded();
}

const std::vector<std::shared_ptr<FlatParameter>>& ShardedModel::units() const {
  return sharding_->sharded().units();
}

torch::OrderedDict<std::string, at::Tensor> ShardedModel::named_parameters() {
  sharding_->check_parameters();
  sharding_->leaves().sync_requires_grad();
  sharding_->gradients()->move_gradients_to_leaves();
  torch::OrderedDict<std::string, at::Tensor> named;
  for (const auto& entry : sharding_->leaves().entries())
    named.insert(entry.name, entry.leaf);
  return named;
}

std::vector<at::Tensor> ShardedModel::parameters() {
  return named_parameters().values();
}

void ShardedModel::zero_grad() {
  sharding_->gradients()->zero_grad();
}

double ShardedModel::clip_grad_norm_(double max_norm, double norm_type) {
  const CallerScope caller("clip_grad_norm_()");
  const at::NoGradGuard no_grad;
  sharding_->gradients()->check_complete();
  const PartsAsTensors inside;
  std::vector<at::Tensor> gradients;
  for (const auto& entry : sharding_->leaves().entries())
    if (entry.leaf.grad().defined()) gradients.push_back(entry.leaf.grad());
  for (const auto& unit : units())
    if (unit->sharded_gradient().defined()) gradients.push_back(unit->sharded_gradient());
  return clip_over_ranks(gradients, sharding_->comm(), max_norm, norm_type);
}

NoSync ShardedModel::no_sync() {
  return NoSync([gradients = sharding_->gradients()](bool sync) { gradients->set_sync(sync); });
}

void ShardedModel::summon_full_params(const std::function<void()>& body,
                                      const SummonOptions& options) {
  const CallerScope caller("summon_full_params()");
  sharding_->begin("summon_full_params");
  sharding_->summon();
  const auto end = c10::make_scope_exit([&] { sharding_->end_summon(); });
  std::vector<std::string> before;
  for (const auto& unit : units())
    before.push_back(values_digest(unit->shard()));
  body();
  sharding_->check_views();
  const bool has_replaced_data = sharding_->leaves().has_replaced_data();
  for (size_t i = 0; i < units().size(); ++i) {
    if (values_digest(units()[i]->shard()) == before[i] && !has_replaced_data) continue;
    throw std::logic_error(
        "summon_full_params: model.parameters() of unit " + units()[i]->unit() +
        " were written to inside it; write to the module's parameters there, or to "
        "model.parameters() outside of it");
  }
  if (!options.writeback) return;
  std::vector<RankInvariant> invariants;
  for (const auto& unit : units())
    add_values(invariants, "parameter", unit->parameters(),
               "write the same on every rank, or set .writeback to false");
  check_same_on_all_ranks(sharding_->comm(), invariants, "summon_full_params");
  const at::NoGradGuard no_grad;
  for (const auto& unit : units()) {
    const at::Tensor own = own_part(*unit);
    // With .mixed_precision, parameters in 16 bits are rounded, so only elements that `body` has
    // changed are copied: the other elements of the shard keep their precision.
    const at::Tensor& shard = unit->shard();
    const at::Tensor unchanged = own.eq(shard.to(own.scalar_type()));
    at::Tensor(shard).copy_(at::where(unchanged, shard, own.to(shard.scalar_type())));
  }
}

void ShardedModel::average_buffers() {
  const CallerScope caller("average_buffers()");
  sharding_->begin("average_buffers");
  fsdp::average_buffers(sharding_->comm(), distinct_buffers(sharding_->net()));
}

}  // namespace fsdp
