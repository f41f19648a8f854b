#include <norms_over_ranks.h>
#include <reducer.h>
#include <replicated_model.h>

namespace fsdp {

Norms ReplicatedModel::param_norms(double norm_type) {
  const at::NoGradGuard no_grad;
  std::vector<NamedPart> parameters;
  for (const auto& entry : reducer_->entries())
    parameters.push_back({entry.name, entry.tensor});
  return norms_of(parameters, norm_type);
}

Norms ReplicatedModel::grad_norms(double norm_type) {
  const at::NoGradGuard no_grad;
  return norms_of(gradients_of({reducer_->entries().begin(), reducer_->entries().end()}),
                  norm_type);
}

bool ReplicatedModel::gradients_are_finite() {
  const CallerScope caller("gradients_are_finite()");
  const at::NoGradGuard no_grad;
  return finite_on_all_ranks(gradients_of({reducer_->entries().begin(), reducer_->entries().end()}),
                             *comm_);
}

}  // namespace fsdp
