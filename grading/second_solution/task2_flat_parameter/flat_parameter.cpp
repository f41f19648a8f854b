#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <memory/poison.h>
#include <meta_init.h>

#include <algorithm>
#include <exception>
#include <stdexcept>

namespace fsdp {
namespace {

// The flat gradient exists from the first mark_gradient_ready() until the next reduce_gradient().
// In this time, .grad of each parameter for which mark_gradient_ready() was called is a view of the
// flat gradient. The flat gradient has the parameters' dtype, or the dtype that widen_gradients()
// has given to it. reduce_gradient() converts it to reduce_dtype.
class FlatParameterImpl final : public FlatParameter {
 public:
  FlatParameterImpl(std::string unit, std::vector<NamedParameter> parameters,
                    std::shared_ptr<Communicator> comm, const Materialize& materialize);
  ~FlatParameterImpl() override { wait_for_all(); }

  bool trainable() const override;
  void unshard_async() override;
  void unshard() override;
  void reshard() override;
  void mark_gradient_ready(size_t index) override;
  bool has_gradient() const override { return gradient_.defined(); }
  void reduce_gradient() override;
  void wait_for_reduction() override;
  void discard_unreduced_gradients() override;
  void set_mixed_precision(const MixedPrecisionPolicy& policy) override;
  void widen_gradients() override;

 private:
  // Returns a view of the flat tensor `flat`: the elements of the parameter with the index `index`,
  // in the sizes of the parameter.
  at::Tensor part(const at::Tensor& flat, size_t index) const;
  std::vector<at::Tensor> views_without_memory(at::ScalarType dtype = at::kFloat);
  void keep_shard_of(size_t index, const Materialize& materialize);
  void set_memory(size_t bytes);
  void wait_for_all() noexcept;
  void begin_gradient();
  void take_gradients();  // makes gradient_ and .grad of every parameter undefined

  // [padded_numel], in memory of this object; the unit's flat tensor, of which the parameters are
  // views. It has no memory while the unit is sharded.
  at::Tensor flat_;
  // What the other ranks read in an all-gather: shard_ itself, or a copy of it in param_dtype.
  at::Tensor lent_shard_;
  // [padded_numel], in memory of this object; the flat gradient, with the gradients for which
  // mark_gradient_ready() was called since the last reduce_gradient().
  at::Tensor gradient_;
  // [padded_numel], in memory of this object; the input of the reduction under way: the former
  // gradient_, or a copy of it in reduce_dtype.
  at::Tensor in_reduction_;
  // [padded_numel / W], in memory of this object; the result of the reduction under way.
  at::Tensor mean_;
  Handle gather_;
  Handle reduction_;
};

FlatParameterImpl::FlatParameterImpl(std::string unit, std::vector<NamedParameter> parameters,
                                     std::shared_ptr<Communicator> comm,
                                     const Materialize& materialize) {
  unit_ = std::move(unit);
  parameters_ = std::move(parameters);
  comm_ = std::move(comm);
  at::NoGradGuard no_grad;
  check_fp32(unit_, parameters_);
  layout_ = flat_layout(numel_of_each(parameters_), comm_->world_size());
  {
    const MemoryScope scope(MemoryClass::shards);
    shard_ = comm_->empty(layout_.padded_numel / comm_->world_size()).fill_(poison::padding());
    lent_shard_ = shard_;
  }
  const std::vector<at::Tensor> views = views_without_memory();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    keep_shard_of(i, materialize);
    assign_data(parameters_[i].tensor, views[i]);
  }
}

// wait_for_all() ignores errors of its two waits: they mean that the communicator has failed, and
// the communicator's next call throws the error again.
void FlatParameterImpl::wait_for_all() noexcept {
  for (Handle* handle : {&reduction_, &gather_}) {
    try {
      if (std::uncaught_exceptions() == 0) handle->wait();
    } catch (...) {
    }
  }
}

at::Tensor FlatParameterImpl::part(const at::Tensor& flat, size_t index) const {
  const at::Tensor& parameter = parameters_[index].tensor;
  return flat.narrow(0, layout_.offsets[index], parameter.numel()).view(parameter.sizes());
}

// PyTorch makes a view of a tensor only if the tensor's storage is large enough. So the empty
// storage of flat_ reports its full size while the views are made.
std::vector<at::Tensor> FlatParameterImpl::views_without_memory(at::ScalarType dtype) {
  flat_ = at::empty({0}, at::TensorOptions().device(comm_->device()).dtype(dtype));
  c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
  storage->set_nbytes(static_cast<size_t>(layout_.padded_numel) * flat_.element_size());
  flat_.unsafeGetTensorImpl()->set_sizes_contiguous({layout_.padded_numel});
  std::vector<at::Tensor> views;
  for (size_t i = 0; i < parameters_.size(); ++i)
    views.push_back(part(flat_, i));
  storage->set_nbytes(0);
  return views;
}

void FlatParameterImpl::keep_shard_of(size_t index, const Materialize& materialize) {
  const at::Tensor& parameter = parameters_[index].tensor;
  // The element at which the parameter begins, counted from the beginning of this rank's shard.
  const int64_t first = layout_.offsets[index] - shard_offset();
  const int64_t begin = std::clamp<int64_t>(first, 0, shard_numel());
  const int64_t end = std::clamp<int64_t>(first + parameter.numel(), 0, shard_numel());
  if (begin == end) return;
  const at::Tensor values = materialize ? materialize(parameter) : parameter;
  shard_.slice(0, begin, end)
      .copy_(values.reshape({values.numel()}).slice(0, begin - first, end - first));
}

bool FlatParameterImpl::trainable() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const NamedParameter& p) { return p.tensor.requires_grad(); });
}

void FlatParameterImpl::set_memory(size_t bytes) {
  const MemoryScope scope(MemoryClass::gathered);
  c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
  auto memory =
      bytes > 0 ? storage->allocator()->allocate(bytes) : c10::DataPtr(nullptr, storage->device());
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(bytes);
}

void FlatParameterImpl::unshard_async() {
  if (state_ != UnitState::sharded) return;
  if (precision_.rounds_parameters()) lent_shard_.copy_(shard_);
  set_memory(flat_.nbytes());
  // Autograd does not count the all-gather as a change of the parameters, because the tensor that
  // variable_data() returns has its own version counter.
  gather_ = comm_->all_gather_into(flat_.variable_data(), lent_shard_, unit_);
  state_ = UnitState::gathering;
}

void FlatParameterImpl::unshard() {
  unshard_async();
  if (state_ == UnitState::gathering) gather_.wait();
  state_ = UnitState::unsharded;
}

void FlatParameterImpl::reshard() {
  if (state_ == UnitState::sharded) return;
  if (state_ == UnitState::gathering) gather_.wait();
  set_memory(0);
  state_ = UnitState::sharded;
}

void FlatParameterImpl::begin_gradient() {
  const MemoryScope scope(MemoryClass::gradients);
  gradient_ = comm_->empty(layout_.padded_numel, precision_.param_dtype).zero_();
}

void FlatParameterImpl::mark_gradient_ready(size_t index) {
  at::NoGradGuard no_grad;
  if (!gradient_.defined()) begin_gradient();
  at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
  // If .grad is a view of the flat gradient already, autograd has added the new gradient there.
  if (gradient.is_alias_of(gradient_)) return;
  const at::Tensor view = part(gradient_, index);
  view.copy_(gradient);
  gradient = view;
}

void FlatParameterImpl::widen_gradients() {
  at::NoGradGuard no_grad;
  const at::ScalarType dtype = precision_.accumulate_dtype();
  if (!gradient_.defined() || gradient_.scalar_type() == dtype) return;
  const MemoryScope scope(MemoryClass::gradients);
  const at::Tensor narrow = gradient_;
  gradient_ = comm_->empty(layout_.padded_numel, dtype).copy_(narrow);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (gradient.defined() && gradient.is_alias_of(narrow)) gradient = part(gradient_, i);
  }
}

void FlatParameterImpl::take_gradients() {
  for (const auto& parameter : parameters_)
    parameter.tensor.mutable_grad().reset();
  gradient_.reset();
}

void FlatParameterImpl::discard_unreduced_gradients() {
  take_gradients();
  if (!in_reduction_.defined()) return;
  reduction_.wait();
  in_reduction_.reset();
  mean_.reset();
}

void FlatParameterImpl::reduce_gradient() {
  at::NoGradGuard no_grad;
  wait_for_reduction();
  if (!gradient_.defined()) begin_gradient();
  if (gradient_.scalar_type() == precision_.reduce_dtype) {
    in_reduction_ = gradient_;
  } else {
    const MemoryScope scope(MemoryClass::gradients);
    in_reduction_ = comm_->empty(layout_.padded_numel, precision_.reduce_dtype).copy_(gradient_);
  }
  take_gradients();
  const MemoryScope scope(MemoryClass::sharded_gradients);
  mean_ = comm_->empty(shard_numel());
  reduction_ = comm_->reduce_scatter_into(mean_, in_reduction_, unit_);
}

void FlatParameterImpl::wait_for_reduction() {
  at::NoGradGuard no_grad;
  if (!in_reduction_.defined()) return;
  reduction_.wait();
  in_reduction_.reset();
  mean_.div_(gradient_divide_factor());
  if (sharded_gradient_.defined()) {
    sharded_gradient_.add_(mean_);
    mean_.reset();
  } else {
    std::swap(sharded_gradient_, mean_);
  }
}

// Makes a new flat tensor of policy.param_dtype, and makes the parameters views of it.
void FlatParameterImpl::set_mixed_precision(const MixedPrecisionPolicy& policy) {
  check_mixed_precision(policy);
  if (state_ != UnitState::sharded) throw std::logic_error(unit_ + " is not sharded");
  if (has_gradient()) throw std::logic_error(unit_ + " has a gradient");
  precision_ = policy;
  const std::vector<at::Tensor> views = views_without_memory(policy.param_dtype);
  for (size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].tensor.set_data(views[i]);
  const MemoryScope scope(MemoryClass::shards);
  lent_shard_ =
      policy.rounds_parameters() ? comm_->empty(shard_numel(), policy.param_dtype) : shard_;
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
