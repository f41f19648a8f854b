#include <backward_pass.h>
#include <buffers.h>
#include <memory/storage_guard.h>
#include <model_checks.h>
#include <optim/clip_grad_norm.h>
#include <reducer.h>
#include <replicated_model.h>

#include <stdexcept>

namespace fsdp {
namespace {

const char* const kWhere = "DistributedDataParallel";

void check_can_be_replicated(const Module& net, const DistributedDataParallelOptions& options) {
  const std::string where = kWhere;
  if (!(options.bucket_cap_mb >= 0))
    throw std::invalid_argument(where + ": .bucket_cap_mb must be 0 or more");
  for (const auto& [name, parameter] : distinct_parameters(net)) {
    const char* problem = parameter.is_meta()
                              ? "has no values yet; build the model without DeferredInit"
                          : is_freed(parameter) || is_replicated(parameter)
                              ? "is sharded or replicated by another object already; use that one"
                              : nullptr;
    if (problem != nullptr)
      throw std::invalid_argument(where + ": parameter " + name + " " + problem);
  }
  check_floating(where, distinct_parameters(net));
}

}  // namespace

ReplicatedModel::ReplicatedModel(Module& net, std::shared_ptr<Communicator> comm,
                                 const DistributedDataParallelOptions& options)
    : net_(net),
      comm_(std::move(comm)),
      broadcast_buffers_(options.broadcast_buffers),
      owner_(net.weak_from_this().lock()) {
  check_can_be_replicated(net, options);
  verify_model_across_ranks(*comm_, net, {},
                            {{".bucket_cap_mb", std::to_string(options.bucket_cap_mb)},
                             {".sync_module_states", std::to_string(options.sync_module_states)},
                             {".broadcast_buffers", std::to_string(options.broadcast_buffers)}},
                            options.sync_module_states, kWhere);
  reducer_ = std::make_shared<Reducer>(net, comm_, options.bucket_cap_mb);
  reducer_->register_hooks();
  net.register_forward_pre_hook([&net, comm = comm_, broadcast = options.broadcast_buffers,
                                 reducer = reducer_](Module&, const at::Tensor&) {
    if (in_backward()) return at::Tensor();
    reducer->begin_forward();
    if (broadcast) broadcast_from_rank_0(*comm, distinct_buffers(net));
    return at::Tensor();
  });
}

void ReplicatedModel::begin(const std::string& function) {
  if (in_backward())
    throw std::logic_error(function + "(): called inside a backward pass; call it between steps");
  run_deferred_failures();
  reducer_->check_parameters();
}

torch::OrderedDict<std::string, at::Tensor> ReplicatedModel::named_parameters() {
  torch::OrderedDict<std::string, at::Tensor> named;
  for (const auto& entry : reducer_->entries())
    named.insert(entry.name, entry.tensor);
  return named;
}

void ReplicatedModel::zero_grad() {
  reducer_->zero_grad();
}

double ReplicatedModel::clip_grad_norm_(double max_norm, double norm_type) {
  std::vector<at::Tensor> gradients;
  for (const auto& entry : reducer_->entries())
    if (entry.tensor.grad().defined()) gradients.push_back(entry.tensor.grad());
  return clip_grad_norm(gradients, max_norm, norm_type);
}

NoSync ReplicatedModel::no_sync() {
  return NoSync([reducer = reducer_](bool sync) { reducer->set_sync(sync); });
}

void ReplicatedModel::average_buffers() {
  begin("average_buffers");
  fsdp::average_buffers(*comm_, distinct_buffers(net_));
}

}  // namespace fsdp
