#include <model_checks.h>
#include <norms_over_ranks.h>
#include <part_mark.h>
#include <sharded_model.h>
#include <sharded_model_impl.h>

namespace fsdp {
namespace {

std::vector<NamedPart> own_gradients(const ShardedModelImpl& sharding) {
  std::vector<NamedPart> gradients;
  for (const auto& entry : sharding.leaves().entries()) {
    at::Tensor gradient = entry.leaf.grad();
    const FlatParameter& unit = *sharding.sharded().units()[entry.unit];
    // The unit's gradient is undefined if model.parameters() was called, because the gradients are
    // in .grad of the leaves then.
    const at::Tensor& of_unit = unit.sharded_gradient();
    if (!gradient.defined() && of_unit.defined() && entry.requires_grad)
      gradient = of_unit.narrow(0, entry.offset, entry.leaf.numel());
    gradients.push_back({entry.name, gradient});
  }
  return gradients;
}

}  // namespace

Norms ShardedModel::param_norms(double norm_type) {
  const CallerScope caller("param_norms()");
  const at::NoGradGuard no_grad;
  const PartsAsTensors inside;
  std::vector<NamedPart> parts;
  for (const auto& entry : sharding_->leaves().entries())
    parts.push_back({entry.name, entry.leaf});
  return norms_over_ranks(parts, sharding_->comm(), norm_type);
}

Norms ShardedModel::grad_norms(double norm_type) {
  const CallerScope caller("grad_norms()");
  const at::NoGradGuard no_grad;
  const PartsAsTensors inside;
  return norms_over_ranks(own_gradients(*sharding_), sharding_->comm(), norm_type);
}

bool ShardedModel::gradients_are_finite() {
  const CallerScope caller("gradients_are_finite()");
  const at::NoGradGuard no_grad;
  const PartsAsTensors inside;
  auto gradients = own_gradients(*sharding_);
  const auto ignored = gradients_of(ignored_parameters(sharding_->net(), sharding_->sharded()));
  gradients.insert(gradients.end(), ignored.begin(), ignored.end());
  return finite_on_all_ranks(gradients, sharding_->comm());
}

}  // namespace fsdp
