#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <meta_init.h>

#include <algorithm>

namespace fsdp {
namespace {

// A cheat: every rank holds all parameters all the time, but reports states as if they were
// sharded. It issues the all-gathers and reduce-scatters that the tests expect, and discards their
// results; it gets the reduced gradients with additional all-reduces. The tests of tasks 2 to 7
// must give no point for it.
class FlatParameterImpl final : public FlatParameter {
 public:
  FlatParameterImpl(std::string unit, std::vector<NamedParameter> parameters,
                    std::shared_ptr<Communicator> comm, const Materialize& materialize);

  bool trainable() const override {
    return std::any_of(parameters_.begin(), parameters_.end(),
                       [](const NamedParameter& p) { return p.tensor.requires_grad(); });
  }
  void unshard_async() override;
  void unshard() override;
  void reshard() override { state_ = UnitState::sharded; }
  void mark_gradient_ready(size_t index) override { collected_[index] = true; }
  bool has_gradient() const override {
    return std::find(collected_.begin(), collected_.end(), true) != collected_.end();
  }
  void reduce_gradient() override;
  void wait_for_reduction() override;
  void discard_unreduced_gradients() override;
  // Does nothing: all tensors of the cheat stay fp32, whatever the policy is.
  void set_mixed_precision(const MixedPrecisionPolicy& /*policy*/) override {}

 private:
  // [padded_numel], in memory of this object; the sum over ranks of the unit's gradients, from
  // reduce_gradient() until wait_for_reduction().
  at::Tensor gradient_;
  // For each parameter, whether mark_gradient_ready() was called since the last reduce_gradient().
  std::vector<bool> collected_;
};

FlatParameterImpl::FlatParameterImpl(std::string unit, std::vector<NamedParameter> parameters,
                                     std::shared_ptr<Communicator> comm,
                                     const Materialize& materialize)
    : collected_(parameters.size()) {
  unit_ = std::move(unit);
  parameters_ = std::move(parameters);
  comm_ = std::move(comm);
  const at::NoGradGuard no_grad;
  layout_ = flat_layout(numel_of_each(parameters_), comm_->world_size());
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

void FlatParameterImpl::unshard_async() {
  if (state_ != UnitState::sharded) return;
  state_ = UnitState::gathering;
  const int64_t numel = layout_.padded_numel / comm_->world_size();
  const at::Tensor all = at::empty({layout_.padded_numel});
  comm_->all_gather_into(all, at::zeros({numel}), unit_).wait();
}

void FlatParameterImpl::unshard() {
  unshard_async();
  state_ = UnitState::unsharded;
}

void FlatParameterImpl::reduce_gradient() {
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

void FlatParameterImpl::wait_for_reduction() {
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

void FlatParameterImpl::discard_unreduced_gradients() {
  gradient_.reset();
  for (const auto& [name, parameter] : parameters_)
    parameter.mutable_grad().reset();
  collected_.assign(parameters_.size(), false);
}

}  // namespace

std::shared_ptr<FlatParameter> make_flat_parameter(std::string unit,
                                                   std::vector<NamedParameter> parameters,
                                                   std::shared_ptr<Communicator> comm,
                                                   const FlatParameter::Materialize& materialize) {
  return std::make_shared<FlatParameterImpl>(std::move(unit), std::move(parameters),
                                             std::move(comm), materialize);
}

}  // namespace fsdp
