#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <meta_init.h>

#include <algorithm>

namespace fsdp {

FlatParameter::FlatParameter(std::string unit, std::vector<NamedParameter> parameters,
                             std::shared_ptr<Communicator> comm, const Materialize& materialize)
    : unit_(std::move(unit)),
      parameters_(std::move(parameters)),
      comm_(std::move(comm)),
      collected_(parameters_.size()) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> numels;
  for (const auto& [name, parameter] : parameters_)
    numels.push_back(parameter.numel());
  layout_ = flat_layout(numels, comm_->world_size());
  shard_ = at::zeros({layout_.padded_numel});
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i].tensor;
    const at::Tensor values = materialize ? materialize(parameter) : parameter.detach();
    const at::Tensor place =
        shard_.narrow(0, layout_.offsets[i], parameter.numel()).view(parameter.sizes());
    place.copy_(values);
    assign_data(parameter, place);
  }
}

bool FlatParameter::trainable() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const NamedParameter& p) { return p.tensor.requires_grad(); });
}

void FlatParameter::unshard_async() {
  if (state_ != UnitState::sharded) return;
  state_ = UnitState::gathering;
  const int64_t numel = layout_.padded_numel / comm_->world_size();
  const at::Tensor all = at::empty({layout_.padded_numel});
  comm_->all_gather_into(all, at::zeros({numel}), unit_).wait();
}

void FlatParameter::unshard() {
  unshard_async();
  state_ = UnitState::unsharded;
}

void FlatParameter::reshard() {
  state_ = UnitState::sharded;
}

void FlatParameter::collect_gradient(size_t index) {
  collected_[index] = true;
}

bool FlatParameter::has_gradient() const {
  return std::find(collected_.begin(), collected_.end(), true) != collected_.end();
}

void FlatParameter::reduce_gradient() {
  const at::NoGradGuard no_grad;
  gradient_ = at::zeros({layout_.padded_numel});
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!collected_[i]) continue;
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    gradient_.narrow(0, layout_.offsets[i], gradient.numel()).copy_(gradient.flatten());
    gradient.reset();
  }
  collected_.assign(parameters_.size(), false);
  const at::Tensor part = at::empty({layout_.padded_numel / comm_->world_size()});
  comm_->reduce_scatter_into(part, gradient_, unit_).wait();
  comm_->all_reduce(gradient_, "<norm>").wait();
}

void FlatParameter::wait_for_reduction() {
  const at::NoGradGuard no_grad;
  if (!gradient_.defined()) return;
  gradient_.div_(gradient_divide_factor());
  if (sharded_gradient_.defined()) {
    sharded_gradient_.add_(gradient_);
  } else {
    sharded_gradient_ = gradient_;
  }
  gradient_.reset();
}

void FlatParameter::abandon_gradient() {
  gradient_.reset();
  for (const auto& [name, parameter] : parameters_)
    parameter.mutable_grad().reset();
  collected_.assign(parameters_.size(), false);
}

}  // namespace fsdp
