#include <any_dtype.h>
#include <memory/poison.h>
#include <memory/reclassify.h>
#include <memory/storage.h>
#include <meta_init.h>

#include <algorithm>
#include <exception>
#include <stdexcept>

#include "flat_parameter_impl.h"

namespace fsdp {

std::shared_ptr<FlatParameter> make_flat_parameter(std::string unit,
                                                   std::vector<NamedParameter> parameters,
                                                   std::shared_ptr<Communicator> comm,
                                                   const FlatParameter::Materialize& materialize) {
  check_fp32(unit, parameters);
  return std::make_shared<FlatParameterImpl>(std::move(unit), std::move(parameters),
                                             std::move(comm), materialize);
}

FlatParameterImpl::FlatParameterImpl(std::string unit, std::vector<NamedParameter> parameters,
                                     std::shared_ptr<Communicator> comm,
                                     const Materialize& materialize) {
  unit_ = std::move(unit);
  parameters_ = std::move(parameters);
  comm_ = std::move(comm);
  layout_ = layout_of_unit(parameters_, comm_->world_size());
  const at::ScalarType dtype = dtype_of(parameters_);
  precision_ = {dtype, dtype};
  at::NoGradGuard no_grad;
  {
    MemoryScope scope(MemoryClass::shards);
    // The other ranks read the shard without a copy.
    shard_ = comm_->empty(layout_.padded_numel / comm_->world_size(), dtype);
    shard_.fill_(poison::padding());
  }
  const c10::Storage storage = storage_of_no_bytes(comm_->device());
  full_ = view_of_storage(storage, 0, {layout_.padded_numel}, dtype);

  const int64_t shard_begin = shard_offset();
  const int64_t shard_end = shard_begin + shard_numel();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i].tensor;
    const int64_t offset = layout_.offsets[i];
    const int64_t begin = std::max(offset, shard_begin);
    const int64_t end = std::min(offset + parameter.numel(), shard_end);
    if (begin < end) {
      const at::Tensor values = materialize ? materialize(parameter) : parameter;
      shard_.slice(0, begin - shard_begin, end - shard_begin)
          .copy_(values.flatten().slice(0, begin - offset, end - offset));
    }
    // The Variable stays the same object, because modules, aliases and hooks still hold it.
    assign_data(parameter, view_of_storage(storage, offset, parameter.sizes(), dtype));
  }
}

FlatParameterImpl::~FlatParameterImpl() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    gather_.wait();
    reduction_.wait();
  } catch (const std::exception&) {  // a destructor must not throw; the next call throws it again
  }
}

bool FlatParameterImpl::trainable() const {
  return std::ranges::any_of(parameters_, [](auto& p) { return p.tensor.requires_grad(); });
}

void FlatParameterImpl::unshard_async() {
  if (state_ != UnitState::sharded) return;
  MemoryScope scope(MemoryClass::gathered);
  resize_storage(full_.storage(), static_cast<int64_t>(full_.nbytes()));
  // Other ranks may still read the rounded copy. They see no change, because whatever changes the
  // shard waits for them first.
  const at::Tensor& shard = rounded_shard_.defined() ? rounded_shard_.copy_(shard_) : shard_;
  // variable_data() has a version counter that no parameter shares. So to autograd the parameters
  // have not changed, and indeed they have not. (Here full_ itself has such a counter too; a base
  // of autograd's views would not.)
  gather_ = comm_->all_gather_into(full_.variable_data(), shard, unit_);
  state_ = UnitState::gathering;
}

void FlatParameterImpl::unshard() {
  unshard_async();
  gather_.wait();
  state_ = UnitState::unsharded;
}

void FlatParameterImpl::reshard() {
  gather_.wait();  // it writes into the storage
  state_ = UnitState::sharded;
  resize_storage(full_.storage(), 0);
}

void FlatParameterImpl::mark_gradient_ready(size_t index) {
  live_bytes::reclassify(parameters_[index].tensor.grad().storage().data_ptr(),
                         MemoryClass::gradients);
  collected_.insert(index);
}

bool FlatParameterImpl::has_gradient() const {
  return !collected_.empty();
}

void FlatParameterImpl::flatten_gradients() {
  const at::NoGradGuard no_grad;  // else the flat gradient would hold the graph of a gradient
  MemoryScope scope(MemoryClass::gradients);
  // The other ranks read the flat gradient without a copy.
  gradient_ = comm_->empty(layout_.padded_numel, precision_.reduce_dtype);
  std::vector<at::Tensor> gradients, places, gaps;
  int64_t end = 0;  // of the last gradient
  const auto gap_up_to = [&](int64_t begin) {
    if (end < begin) gaps.push_back(gradient_.slice(0, end, begin));
  };
  for (const size_t index : collected_) {
    at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
    gap_up_to(layout_.offsets[index]);
    end = layout_.offsets[index] + gradient.numel();
    places.push_back(gradient_.slice(0, layout_.offsets[index], end).view(gradient.sizes()));
    gradients.push_back(std::move(gradient));
  }
  gap_up_to(layout_.padded_numel);
  // On a GPU each call is one kernel, however many parameters the unit has.
  if (!places.empty()) at::_foreach_copy_(places, gradients);
  if (!gaps.empty()) at::_foreach_zero_(gaps);
  collected_.clear();
}

void FlatParameterImpl::reduce_gradient() {
  if (reduction_.pending())
    throw std::logic_error("unit " + unit_ + ": reduce_gradient() before wait_for_reduction()");
  flatten_gradients();
  MemoryScope scope(MemoryClass::sharded_gradients);
  // The sum is fp32, whatever the unit's dtype is. Ranks of other replicas read it without a copy.
  reduced_ = comm_->empty(shard_numel());
  reduction_ = comm_->reduce_scatter_into(reduced_, gradient_, unit_);
}

void FlatParameterImpl::wait_for_reduction() {
  if (!reduction_.pending()) return;
  reduction_.wait();
  gradient_.reset();
  // Divides once, after the sum, because 1/W is not exact for every W.
  if (gradient_divide_factor() != 1) reduced_.div_(gradient_divide_factor());
  {
    // Only now the mean is rounded, if the unit is in 16 bits; to() returns an fp32 mean itself.
    MemoryScope scope(MemoryClass::sharded_gradients);
    reduced_ = reduced_.to(shard_.scalar_type());
  }
  if (sharded_gradient_.defined()) {
    sharded_gradient_.add_(reduced_);
    reduced_.reset();
  } else {
    sharded_gradient_ = std::move(reduced_);
  }
}

void FlatParameterImpl::discard_unreduced_gradients() {
  reduction_.wait();  // the other ranks read the flat gradient until then
  gradient_.reset();
  reduced_.reset();
  // Also drops gradients that were not collected: the next backward pass would add to them.
  for (auto& [name, parameter] : parameters_)
    parameter.mutable_grad().reset();
  collected_.clear();
}

}  // namespace fsdp
